"""Identification of known physics from noisy paths: how well forces, damping, disturbances and forecasts come out."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.analytic import double_pendulum, pendulum
from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric, LearnedMetric
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.dynamics.shooting import IdentifyOptions, identify
from lagsplat_ns.types import State

UNIT = ConstantMetric(torch.eye(1, dtype=torch.float64))


def motion(
    mechanism: Mechanism, q: list[float], qd: list[float], times: torch.Tensor, inputs: InputFunction | None = None
):
    start = State(torch.tensor(q, dtype=torch.float64), torch.tensor(qd, dtype=torch.float64))
    return rollout(mechanism, start, times, inputs=inputs, substeps=3)


def noisy(q: torch.Tensor, share: float) -> torch.Tensor:
    return q + share * (q.amax(0) - q.amin(0)) * torch.randn_like(q)


def force_error(found: Mechanism, true: Mechanism, q: torch.Tensor) -> float:
    """Largest error of -grad V over the range of the path, as a share of the largest force."""
    low, high = float(q.min()), float(q.max())
    grid = torch.linspace(low, high, 100, dtype=torch.float64)[:, None]
    expected = true.conservative_force(grid)
    return float((found.conservative_force(grid) - expected).abs().max() / expected.abs().max())


@pytest.fixture(scope="module")
def swing() -> tuple[torch.Tensor, torch.Tensor]:
    times = torch.arange(300, dtype=torch.float64) / 30
    return times, motion(pendulum(), [1.0], [0.0], times).q


def test_clean_pendulum_to_a_thousandth(swing: tuple[torch.Tensor, torch.Tensor]) -> None:
    times, q = swing
    found = identify([ObservedPath(times, q, num_train=150)], UNIT)
    assert force_error(found.mechanism, pendulum(), q) < 1e-3
    assert float(found.forecast_error()) < 1e-4
    assert found.used_fraction == 1.0


def test_a_learned_inertia_is_found_with_the_forces(swing: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Its network moves off its start, and the forecast of the next 5 s is right; M and V share a scale."""
    times, q = swing
    start = LearnedMetric(1).double()
    found = identify([ObservedPath(times, q, num_train=150)], start, IdentifyOptions(quick=True))
    assert float(found.forecast_error()) < 1e-2
    metric = found.mechanism.metric
    assert isinstance(metric, LearnedMetric)
    assert not torch.equal(metric.parameter_vector(), start.parameter_vector())
    ratio = found.mechanism.conservative_force(q[:50]) / metric.mass_matrix(q[:50])[..., 0]
    expected = pendulum().conservative_force(q[:50])
    assert float((ratio - expected).abs().max() / expected.abs().max()) < 0.05


def test_noisy_pendulum(swing: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Noise of 0.3 % of the range: forecast of the next 5 s below 0.3 %, noise and damping read correctly."""
    times, q = swing
    observed = ObservedPath(times, noisy(q, 0.003), num_train=150)
    found = identify([observed], UNIT)
    truth = ObservedPath(times, q, num_train=150)
    assert float(found.forecast_error([truth])) < 3e-3
    assert abs(float(found.noise[0] / (q.max() - q.min())) - 0.003) < 5e-4
    rate = float(found.mechanism.damping_matrix(torch.zeros(1, dtype=torch.float64)))
    assert abs(rate - 0.15) < 0.01
    assert force_error(found.mechanism, pendulum(), q) < 0.02

    # What joint refinement uses: the linearization predicts the paths of moved parameters, to second order.
    linear = found.linearization()
    change = 1e-3 * torch.randn_like(linear.p0) * linear.prior_spread.clamp(max=1.0)
    errors = []
    for size in (1.0, 0.5):
        moved = found.with_parameters(linear.p0 + size * change)
        predicted = linear.q0[0] + linear.slopes[0] @ (size * change)
        errors.append(float((moved.paths[0].q - predicted).abs().max()))
    assert 1.7 < math.log2(errors[0] / errors[1]) < 2.3
    assert torch.equal(linear.q0[0], found.paths[0].q)


def test_hand_and_blow_are_found_and_left_out() -> None:
    """A hand leads the first 2.5 s, a blow comes at 10 s: both reported in seconds, and the forecast unharmed."""
    times = torch.arange(480, dtype=torch.float64) / 30
    q = torch.zeros(480, 1, dtype=torch.float64)
    led = times < 2.5
    q[led, 0] = 0.9 * torch.cos(1.1 * times[led]) + 0.05 * torch.sin(5 * times[led])
    release = int(led.sum())
    speed = float(q[release - 1, 0] - q[release - 2, 0]) * 30
    free = motion(pendulum(), [float(q[release - 1, 0])], [speed], times[release - 1 : 300])
    q[release:300] = free.q[1:]
    after = motion(pendulum(), [float(free.q[-1])], [float(free.qd[-1]) + 1.5], times[299:])
    q[300:] = after.q[1:]
    found = identify([ObservedPath(times, noisy(q, 0.003), num_train=400)], UNIT)
    spans = found.paths[0].disturbed_s
    assert len(spans) == 2
    assert spans[0][0] == 0.0
    assert 2.0 < spans[0][1] < 2.7
    assert 9.8 < spans[1][0] < spans[1][1] < 10.2
    assert float(found.forecast_error([ObservedPath(times, q, num_train=400)])) < 4e-3
    assert any("disturbed" in note for note in found.notes)


def test_drag_is_admitted_where_the_tail_asks_for_it() -> None:
    times = torch.arange(420, dtype=torch.float64) / 30
    true = pendulum(viscous=0.02, drag=0.12)
    q = motion(true, [1.2], [0.0], times).q
    found = identify([ObservedPath(times, noisy(q, 0.003), num_train=330)], UNIT)
    assert found.mechanism.damping.active_kinds == (True, False)
    assert abs(float(found.mechanism.damping.log_rates[1].exp()) - 0.12) < 0.02
    assert float(found.forecast_error([ObservedPath(times, q, num_train=330)])) < 3e-3


def test_torque_two_clips_and_uneven_times() -> None:
    """Two clips with starts and inputs of their own, frames at uneven times: one gain, one pendulum."""
    true, paths, truths = pendulum(torque_gain=2.0), [], []
    for phase, start in ((0.0, 0.3), (1.7, -0.6)):
        steps = (1 + 0.4 * torch.rand(179, dtype=torch.float64)) / 36
        times = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])

        def torque(t: torch.Tensor, phase: float = phase) -> torch.Tensor:
            return (1.5 * torch.sin(2.3 * t + phase))[..., None]

        q = motion(true, [start], [0.0], times, torque).q
        paths.append(ObservedPath(times, noisy(q, 0.002), torque, num_train=140))
        truths.append(ObservedPath(times, q, torque, num_train=140))
    found = identify(paths, UNIT, IdentifyOptions(find_disturbed=False), num_inputs=1)
    gain = float(found.mechanism.input_force(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)))
    assert abs(gain - 2.0) < 0.02
    assert float(found.forecast_error(truths).max()) < 5e-3


def test_a_rattling_path_ends_early_with_a_bounded_forecast() -> None:
    """Jumps every half second are no smooth mechanism: a small budget suffices, and the forecast stays in range."""
    times = torch.arange(160, dtype=torch.float64) / 30
    q = (2 * torch.rand(11, dtype=torch.float64) - 1).repeat_interleave(15)[:160, None] + 0.01 * torch.randn(160, 1)
    found = identify([ObservedPath(times, q.double(), num_train=128)], UNIT, IdentifyOptions(quick=True))
    ahead = found.paths[0].q[128:]
    assert bool(torch.isfinite(ahead).all())
    assert float(ahead.abs().max()) < 3.0


@pytest.mark.slow
def test_double_pendulum_in_true_angles() -> None:
    """Two degrees of freedom, noise 0.2 %: next 5 s below 1 %, damping matrix with its joint friction recovered."""
    true = double_pendulum()
    times = torch.arange(300, dtype=torch.float64) / 30
    q = motion(true, [0.5, 0.3], [0.0, 0.0], times).q
    found = identify([ObservedPath(times, noisy(q, 0.002), num_train=150)], true.metric)
    assert float(found.forecast_error([ObservedPath(times, q, num_train=150)]).max()) < 1e-2
    origin = torch.zeros(2, dtype=torch.float64)
    damping, expected = found.mechanism.damping_matrix(origin), true.damping_matrix(origin)
    assert float((damping - expected).abs().max() / expected.abs().max()) < 0.06
    # The largest error of a force along the path, at its turning point.
    error = (found.mechanism.conservative_force(q[:150]) - true.conservative_force(q[:150])).abs().max()
    assert float(error / true.conservative_force(q[:150]).abs().max()) < 0.05
