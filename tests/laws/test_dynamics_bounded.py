"""Boundedness: whatever the weights and however hard the push, motions stay finite, lose energy and end."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.analytic import DoublePendulumMetric, double_pendulum, with_damping
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.energy import total_energy
from lagsplat_ns.dynamics.equilibrium import rest_state, rest_states
from lagsplat_ns.dynamics.guard import guarded_step
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.potential import PolynomialPotential
from lagsplat_ns.types import State


def wild_mechanism(d: int, seed: int) -> Mechanism:
    """Weights far beyond any prior, with negative high powers: hills and wells, yet coercive."""
    torch.manual_seed(seed)
    potential = PolynomialPotential(d, 6)
    with torch.no_grad():
        potential.stiffness_factor.mul_(4.0)
        potential.weights.copy_(2 * torch.randn_like(potential.weights))
    metric = ConstantMetric(torch.eye(1, dtype=torch.float64)) if d == 1 else DoublePendulumMetric()
    damping = with_damping(RayleighDamping(d), 0.3)
    return Mechanism(metric, potential, damping).requires_grad_(False)


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_potential_is_bounded_below_and_grows(d: int, seed: int) -> None:
    torch.manual_seed(seed)
    potential = PolynomialPotential(d, 6).requires_grad_(False)
    potential.weights.copy_(5 * torch.randn_like(potential.weights))
    direction = torch.nn.functional.normalize(torch.randn(200, d, dtype=torch.float64), dim=-1)
    far, farther = potential(1e3 * direction), potential(2e3 * direction)
    assert bool((far > 0).all())
    assert bool((farther > 3.5 * far).all())
    near = potential(4 * torch.rand(5000, d, dtype=torch.float64) - 2)
    bound = (potential.weights.abs() * 2.0 ** potential.exponents.sum(-1)).sum()
    assert float(near.min()) > -float(bound)


@pytest.mark.parametrize(("d", "seed"), [(1, 0), (1, 1), (2, 0)])
def test_hundredfold_push_is_survived(d: int, seed: int) -> None:
    """A push to 100 times the usual speed: finite, energy never rises, in steps as a simulator takes them."""
    mechanism = wild_mechanism(d, seed)
    state = State(torch.zeros(d, dtype=torch.float64), torch.full((d,), 100.0, dtype=torch.float64))
    energies = [float(total_energy(mechanism, state))]
    for _ in range(10):
        state = guarded_step(mechanism, state, 1 / 30)
        energies.append(float(total_energy(mechanism, state)))
    assert all(torch.isfinite(torch.tensor(energies)))
    assert all(later <= earlier for earlier, later in zip(energies[:-1], energies[1:]))
    assert energies[-1] < energies[0]


def test_after_a_hundredfold_push_the_motion_is_gone_for_good() -> None:
    """What energy is left after 100 s is round-off, and since no step raises it, nothing can begin to move again."""
    mechanism = wild_mechanism(1, 3)
    with_damping(mechanism.damping, 1.5)
    state = State(torch.zeros(1, dtype=torch.float64), torch.full((1,), 100.0, dtype=torch.float64))
    energy = float(total_energy(mechanism, state))
    for _ in range(20):
        state = guarded_step(mechanism, state, 5.0, max_step_s=0.1)
        later = float(total_energy(mechanism, state))
        assert later <= energy + 1e-14 * abs(energy) + 1e-15
        energy = later
    rest = rest_state(mechanism, state.q)
    assert energy - float(mechanism.potential_energy(rest)) < 1e-12
    assert float(state.qd.abs().max()) < 1e-6
    assert float((state.q - rest).abs().max()) < 1e-6


def test_an_unconstrained_predictor_fails_the_same_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quartic fitted freely, without floor and clipping, leaves the range of numbers within a second."""

    class Free(torch.nn.Module):
        latent_dim = 1

        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return (0.5 * q**2 - 0.05 * q**4)[..., 0]

        def gradient(self, q: torch.Tensor) -> torch.Tensor:
            return q - 0.2 * q**3

    metric = ConstantMetric(torch.eye(1, dtype=torch.float64))
    mechanism = Mechanism(metric, Free(), RayleighDamping(1)).requires_grad_(False)
    state = State(torch.zeros(1, dtype=torch.float64), torch.full((1,), 100.0, dtype=torch.float64))
    monkeypatch.setattr("lagsplat_ns.dynamics.guard._MAX_SUBSTEPS", 1000)
    with pytest.raises(FloatingPointError, match="finite and resolvable"):
        guarded_step(mechanism, state, 2.0)


def test_rest_state_of_a_double_pendulum() -> None:
    start = torch.tensor([0.7, -0.4], dtype=torch.float64)
    assert float(rest_state(double_pendulum(), start).abs().max()) < 1e-10


def test_several_rest_states_are_found_deepest_first() -> None:
    potential = PolynomialPotential(1, 4).requires_grad_(False)
    potential.stiffness_factor.fill_(0.1)
    # Nearly x^4 - x^3 with a weak spring: one shallow minimum near 0, one deep near 1.
    potential.weights.copy_(torch.tensor([0.02, -0.6, 0.45]))
    metric = ConstantMetric(torch.eye(1, dtype=torch.float64))
    mechanism = Mechanism(metric, potential, RayleighDamping(1))
    starts = torch.tensor([[-0.3], [0.9], [1.1]], dtype=torch.float64)
    found = rest_states(mechanism, starts)
    slopes = potential.gradient(found)
    assert found.shape[0] == 2
    assert float(slopes.abs().max()) < 1e-10
    assert float(potential(found[0])) < float(potential(found[1]))


def wheel(period: float) -> Mechanism:
    """A coordinate that comes round after `period`, with a deep rest state at 0 and a shallow one half a turn on."""
    potential = PolynomialPotential(1, 4).requires_grad_(False)
    periods = torch.tensor([period], dtype=torch.float64)
    potential.admit(torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.long), periods)
    potential.harmonics.copy_(torch.tensor([-0.3, -1.0, 0.0, 0.0]))  # cosines of order 1 and 2, sines
    return Mechanism(ConstantMetric(torch.eye(1, dtype=torch.float64)), potential, RayleighDamping(1))


def test_rest_states_whole_turns_apart_are_one() -> None:
    starts = torch.tensor([[1.9], [-2.2], [-3.9], [0.2], [4.1], [8.3], [6.1]], dtype=torch.float64)
    found = rest_states(wheel(4.0), starts)
    turned = torch.remainder(found[:, 0] + 1.0, 4.0) - 1.0
    torch.testing.assert_close(turned, torch.tensor([0.0, 2.0], dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("is_level", [True, False])
def test_rest_states_joined_by_a_level_way_are_one(is_level: bool) -> None:
    """Two wells along the first coordinate; along the second nothing pulls (a cart on a level track), or two wells."""
    potential = PolynomialPotential(2, 4).requires_grad_(False)
    is_elastic, groups = torch.tensor([True, not is_level]), torch.arange(2)
    potential.admit(is_elastic, groups, torch.full((2,), math.inf, dtype=torch.float64))
    potential.stiffness_factor.mul_(0.1)
    for axis in range(1 if is_level else 2):
        for power, weight in ((1, 0.02), (3, -0.6), (4, 0.45)):
            exponents = torch.zeros(2, dtype=torch.long)
            exponents[axis] = power
            potential.weights[(potential.exponents == exponents).all(1)] = weight
    mechanism = Mechanism(ConstantMetric(torch.eye(2, dtype=torch.float64)), potential, RayleighDamping(2))
    values = torch.tensor([-0.3, 0.9, 1.1], dtype=torch.float64)
    found = rest_states(mechanism, torch.cartesian_prod(values, values))
    assert len(found) == (2 if is_level else 4)
    assert float(found[0, 0]) > 0.8
    assert float(potential.gradient(found).abs().max()) < 1e-10
