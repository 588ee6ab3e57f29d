"""Integrators: orders as fitted slopes, exact reversal where it holds, agreement with torchdiffeq and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.analytic import DampedOscillator, double_pendulum, pendulum
from lagsplat_ns.dynamics.integrators import ORDERS, step
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.rollout import rollout
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


@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_order_with_a_metric_that_depends_on_q(method: str, order: int) -> None:
    mechanism = double_pendulum()
    exact = step(mechanism, TWO, 0.8, substeps=800)
    assert abs(fitted_order(mechanism, method, exact, TWO, 0.8) - order) < 0.25


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


def test_adaptive_solver_agrees() -> None:
    mechanism = double_pendulum()
    times = torch.linspace(0, 1, 11, dtype=torch.float64)
    ours = rollout(mechanism, TWO, times, substeps=40)
    theirs = rollout(mechanism, TWO, times, method="dopri5")
    assert distance(ours, theirs) < 1e-6


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
