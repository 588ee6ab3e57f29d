"""The unconstrained baseline: trained well enough that beating it means something."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.dynamics.analytic import pendulum
from lagsplat_ns.dynamics.neural_ode import NeuralODEOptions, identify_neural_ode
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.types import State

TIMES = torch.arange(120, dtype=torch.float64) / 30
ONE = State(torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64))
SHORT = NeuralODEOptions(window_frames=(4, 12), iterations=(150, 100))


def test_forecasts_a_pendulum_for_a_second() -> None:
    q = rollout(pendulum(), ONE, TIMES, substeps=3).q
    found = identify_neural_ode([ObservedPath(TIMES, q, num_train=90)], options=SHORT)
    assert float(found.forecast_error()) < 0.05
    assert found.loss < 1e-3
    begin_s, start = found.last_starts[0]
    path = found.rollout(start, torch.tensor([begin_s, 3.1, 3.4], dtype=torch.float64))
    assert path.q.shape == (3, 1)
    assert torch.equal(path.q[1:], found.forecast(torch.tensor([3.1, 3.4], dtype=torch.float64)).q)
    fine = found.rollout(start, torch.tensor([begin_s, 3.1], dtype=torch.float64), method="dopri5")
    assert abs(float(fine.q[-1] - path.q[1])) < 1e-3


def test_inputs_are_asked_at_the_stages_and_repeat_bitwise() -> None:
    def torque(t: torch.Tensor) -> torch.Tensor:
        return torch.sin(2.3 * t)[..., None]

    q = rollout(pendulum(torque_gain=6.0), ONE, TIMES, inputs=torque, substeps=3).q
    observed = [ObservedPath(TIMES, q, torque, num_train=90)]
    found, again = (identify_neural_ode(observed, 1, SHORT) for _ in range(2))
    assert float(found.forecast_error()) < 0.1
    assert torch.equal(found.forecast(TIMES[90:]).q, again.forecast(TIMES[90:]).q)


def test_missing_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="Every clip needs its inputs when num_inputs is 1"):
        identify_neural_ode([ObservedPath(TIMES, torch.sin(TIMES)[:, None])], 1, SHORT)
