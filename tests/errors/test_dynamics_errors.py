"""What the dynamics say when they are given something wrong: what must hold, what came, what to do."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.dynamics.analytic import pendulum
from lagsplat_ns.dynamics.guard import guarded_step
from lagsplat_ns.dynamics.inputs import interpolated_inputs
from lagsplat_ns.dynamics.integrators import integrator
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.shooting import identify
from lagsplat_ns.types import State

TIMES = torch.arange(20, dtype=torch.float64) / 30
Q = torch.sin(TIMES)[:, None]


def test_times_that_fall() -> None:
    times = TIMES.clone()
    times[12] = 0.1
    with pytest.raises(ValueError, match=r"`times_s` must increase, but frame 12 \(0\.1 s\) follows frame 11"):
        ObservedPath(times, Q)


def test_values_that_are_missing_are_allowed_only_where_held_out() -> None:
    q = Q.clone()
    q[15] = float("nan")
    ObservedPath(TIMES, q, num_train=12)
    with pytest.raises(ValueError, match=r"`q` must be finite where it is fitted, but frame 15 is \[nan\]"):
        ObservedPath(TIMES, q)


def test_too_few_frames() -> None:
    with pytest.raises(ValueError, match="needs 8 frames or more to fit, but got 5 of 20"):
        ObservedPath(TIMES, Q, num_train=5)


def test_nothing_moves() -> None:
    still = ObservedPath(TIMES, torch.zeros(20, 1, dtype=torch.float64))
    with pytest.raises(ArithmeticError, match=r"must move .* but q stays at \[0\.0\]"):
        identify([still], ConstantMetric(torch.eye(1, dtype=torch.float64)))


def test_inputs_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="Every clip needs its inputs when num_inputs is 2"):
        identify([ObservedPath(TIMES, Q)], ConstantMetric(torch.eye(1, dtype=torch.float64)), num_inputs=2)
    with pytest.raises(ValueError, match="This mechanism has 0 inputs, but 1 values came"):
        pendulum().input_force(Q[0], torch.ones(1, dtype=torch.float64))


def test_samples_of_inputs() -> None:
    with pytest.raises(ValueError, match=r"Times of inputs must increase, but sample 1 \(0 s\)"):
        interpolated_inputs(torch.zeros(3, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="Inputs must be finite, but sample 0"):
        interpolated_inputs(TIMES, torch.full((20, 1), float("inf"), dtype=torch.float64))


def test_mass_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match="A mass matrix must be symmetric and positive definite"):
        ConstantMetric(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"that of the mass > 0, but got potential=1\.0, damping=1\.0, mass=0\.0"):
        pendulum().with_scales(mass=0.0)


def test_unknown_integrator() -> None:
    with pytest.raises(ValueError, match=r"`integrator` must be one of rk4, .* but is 'euler2'"):
        integrator("euler2")


def test_state_that_is_not_finite() -> None:
    state = State(torch.zeros(1, dtype=torch.float64), torch.full((1,), float("inf"), dtype=torch.float64))
    with pytest.raises(FloatingPointError, match="finite and resolvable"):
        guarded_step(pendulum(), state, 0.1)
