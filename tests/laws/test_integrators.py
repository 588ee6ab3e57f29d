"""Integrators: orders as fitted slopes, exact reversal where it holds, agreement with torchdiffeq and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.analytic import DampedOscillator, double_pendulum, pendulum
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.integrators import ORDERS, step
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.simulation.stepping import Stepper, _dormand_prince
from lagsplat_ns.types import State

ONE = State(torch.tensor([0.8], dtype=torch.float64), torch.tensor([-0.5], dtype=torch.float64))
TWO = State(torch.tensor([0.8, -0.4], dtype=torch.float64), torch.tensor([0.5, 1.5], dtype=torch.float64))


def distance(a: State, b: State) -> float:
    return float(torch.cat([a.q - b.q, a.qd - b.qd], dim=-1).abs().max())


def fitted_order(mechanism: Mechanism, method: str, exact: State, start: State, span_s: float) -> float:
    counts = [20, 40, 80, 160]
    errors = [distance(step(mechanism, start, span_s, method=method, substeps=n), exact) for n in counts]
    logs = torch.tensor([[math.log(span_s / n), math.log(error)] for n, error in zip(counts, errors)])
    centered = logs - logs.mean(0)
    return float((centered[:, 0] * centered[:, 1]).sum() / centered[:, 0].square().sum())


@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_order_on_a_closed_form(method: str, order: int) -> None:
    problem = DampedOscillator()
    exact = problem.exact(ONE, torch.tensor([1.7], dtype=torch.float64))
    end = State(exact.q[0], exact.qd[0])
    assert abs(fitted_order(problem.mechanism(), method, end, ONE, 1.7) - order) < 0.1


@pytest.fixture(scope="module")
def swung() -> State:
    """The double pendulum 0.8 s after `TWO`, to round-off."""
    return step(double_pendulum(), TWO, 0.8, substeps=800)


@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_order_with_a_metric_that_depends_on_q(method: str, order: int, swung: State) -> None:
    assert abs(fitted_order(double_pendulum(), method, swung, TWO, 0.8) - order) < 0.25


@pytest.mark.parametrize("method", ["velocity_verlet", "semi_implicit_euler"])
def test_backward_step_undoes_forward_step_exactly(method: str) -> None:
    """Damped, and with forces that depend on rates through M(q): the adjoint, to round-off."""
    mechanism = double_pendulum(viscous=0.5)
    there = step(mechanism, TWO, 0.6, method=method, substeps=60)
    back = step(mechanism, there, -0.6, method=method, substeps=60)
    assert distance(back, TWO) < 1e-12
    assert distance(there, TWO) > 0.1


def test_rk4_back_and_forth_to_its_order() -> None:
    """The leading error of rk4 changes sign with the step, so that going back cancels it: order 5 is left."""
    mechanism = double_pendulum(viscous=0.5)
    errors = []
    for n in (40, 80, 160):
        there = step(mechanism, TWO, 0.8, substeps=n)
        errors.append(distance(step(mechanism, there, -0.8, substeps=n), TWO))
    slopes = [math.log2(a / b) for a, b in zip(errors[:-1], errors[1:])]
    assert min(slopes) > 4.5
    assert errors[-1] < 2e-6


@pytest.mark.parametrize("method", ["velocity_verlet", "semi_implicit_euler"])
def test_steps_without_damping_keep_areas_of_phase_space(method: str) -> None:
    """Symplectic to round-off for a constant metric and no damping: J^T W J = W, with damping it shrinks."""
    whole = Mechanism(
        ConstantMetric(torch.tensor([[2.0, 0.4], [0.4, 1.0]]).double()), double_pendulum().potential, RayleighDamping(2)
    ).requires_grad_(False)
    mass, y = whole.metric.mass, torch.tensor([0.8, -0.4, 0.5, 1.5]).double()
    unit, zero = torch.eye(2).double(), torch.zeros(2, 2).double()
    area = torch.cat([torch.cat([zero, unit], 1), torch.cat([-unit, zero], 1)])

    def defect(mechanism: Mechanism) -> float:
        def stepped(y: torch.Tensor) -> torch.Tensor:  # in coordinates and momenta
            end = step(mechanism, State(y[:2], torch.linalg.solve(mass, y[2:])), 0.3, method=method, substeps=3)
            return torch.cat([end.q, mass @ end.qd])

        slope = torch.autograd.functional.jacobian(stepped, y)
        assert isinstance(slope, torch.Tensor)
        return float((slope.T @ area @ slope - area).abs().max())

    assert defect(whole.with_scales(damping=0.0)) < 1e-13
    assert defect(whole) > 1e-3


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3"])
def test_adaptive_solvers_agree(method: str) -> None:
    mechanism = double_pendulum()
    times = torch.linspace(0, 0.4, 5, dtype=torch.float64)
    ours = rollout(mechanism, TWO, times, substeps=40)
    theirs = rollout(mechanism, TWO, times, method=method)
    assert distance(ours, theirs) < 1e-7


@pytest.mark.parametrize(("method", "count"), [("heun3", 400), ("explicit_adams", 100), ("fixed_adams", 100)])
def test_solvers_of_fixed_steps_agree(method: str, count: int) -> None:
    mechanism = pendulum()
    ours = step(mechanism, ONE, 0.3, substeps=100)
    assert distance(step(mechanism, ONE, 0.3, method=method, substeps=count), ours) < 1e-6


def test_the_steps_of_the_adaptive_stepper_have_order_five() -> None:
    """Its local errors are held far below these, so the formulae are driven by hand."""
    problem = DampedOscillator()
    mechanism, errors, counts = problem.mechanism(), [], [40, 80, 160]
    exact = problem.exact(ONE, torch.tensor([1.7], dtype=torch.float64))

    def slope(y: torch.Tensor, _: float) -> torch.Tensor:
        return torch.cat([y[1:], forward_dynamics(mechanism, State(y[:1], y[1:]))])

    for count in counts:
        y = torch.cat([ONE.q, ONE.qd])
        for _ in range(count):
            y, _, _ = _dormand_prince(y, slope(y, 0.0), 1.7 / count, slope, 0.0)
        errors.append(distance(State(y[:1], y[1:]), State(exact.q[0], exact.qd[0])))
    slopes = [math.log2(a / b) for a, b in zip(errors[:-1], errors[1:])]
    assert max(abs(value - 5) for value in slopes) < 0.2


@pytest.mark.parametrize("method", ["dopri5", "rk4", "velocity_verlet"])
def test_a_stepper_by_name_agrees_with_the_adaptive_one(method: str) -> None:
    mechanism = double_pendulum()

    def acceleration(now: State, _: float) -> torch.Tensor:
        return forward_dynamics(mechanism, now)

    expected = Stepper().advance(TWO, -0.4, acceleration)
    found = Stepper(method=method)
    assert found.compiled(mechanism) is None
    assert distance(found.advance(TWO, -0.4, acceleration), expected) < (1e-3 if ORDERS.get(method) == 2 else 1e-6)
    with pytest.raises(FloatingPointError, match="The motion must stay finite"):
        found.advance(State(TWO.q, 1e170 * TWO.qd), 0.1, acceleration)


def test_rollout_matches_closed_form_at_uneven_times_in_both_directions() -> None:
    problem = DampedOscillator()
    times = torch.tensor([0.0, 0.1, 0.13, 0.4, 0.9, 1.0], dtype=torch.float64)
    exact = problem.exact(ONE, times)
    assert distance(rollout(problem.mechanism(), ONE, times, substeps=40), exact) < 1e-7
    end = State(exact.q[-1], exact.qd[-1])
    back = rollout(problem.mechanism(), end, times.flip(0), substeps=40)
    assert distance(State(back.q.flip(0), back.qd.flip(0)), exact) < 1e-7


def test_jumps_of_forces_do_not_spoil_the_order() -> None:
    """A force that begins and ends between frames: with its breakpoints the rollout is as good as pieces of it."""
    mechanism = pendulum()

    def push(t: torch.Tensor) -> torch.Tensor:
        return torch.where((t >= 0.113) & (t < 0.271), 3.0, 0.0)[..., None]

    times = torch.linspace(0, 0.5, 6, dtype=torch.float64)
    found = rollout(mechanism, ONE, times, push, substeps=10, breakpoints_s=[0.113, 0.271])
    state = step(mechanism, ONE, 0.113, substeps=100)
    state = step(mechanism, state, 0.158, torch.tensor([3.0], dtype=torch.float64), substeps=100)
    state = step(mechanism, state, 0.229, substeps=100)
    assert distance(State(found.q[-1], found.qd[-1]), state) < 1e-7
    back = rollout(mechanism, state, times.flip(0), push, substeps=10, breakpoints_s=[0.113, 0.271])
    assert distance(State(back.q[-1], back.qd[-1]), ONE) < 1e-7


def test_inputs_are_asked_at_the_integrators_own_times() -> None:
    """A sinusoidal torque keeps order 4; held per step it would fall to 1."""
    mechanism = pendulum(torque_gain=2.0)

    def inputs(t: torch.Tensor) -> torch.Tensor:
        return torch.sin(9 * t)[..., None]

    ends = [step(mechanism, ONE, 1.0, None, inputs, substeps=n) for n in (40, 80, 500)]
    ratio = distance(ends[0], ends[2]) / distance(ends[1], ends[2])
    assert 13 < ratio < 19


def test_batch_of_states_is_each_state_alone() -> None:
    mechanism = double_pendulum()
    batch = State(torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64))
    times = torch.linspace(0, 0.5, 4, dtype=torch.float64)
    together = rollout(mechanism, batch, times)
    assert together.q.shape == (4, 5, 2)
    for k in range(5):
        alone = rollout(mechanism, State(batch.q[k], batch.qd[k]), times)
        assert distance(State(together.q[:, k], together.qd[:, k]), alone) < 1e-13
