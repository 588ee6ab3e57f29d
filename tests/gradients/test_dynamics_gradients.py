"""Derivatives of the dynamics: against finite differences, and closed forms against automatic ones."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.energy import total_energy
from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.integrators import step
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import LearnedMetric
from lagsplat_ns.dynamics.potential import NeuralPotential, PolynomialPotential
from lagsplat_ns.types import State


def polynomial(d: int, degree: int) -> PolynomialPotential:
    potential = PolynomialPotential(d, degree)
    with torch.no_grad():
        potential.weights.copy_(0.3 * torch.randn_like(potential.weights))
        potential.center.copy_(torch.linspace(-0.2, 0.3, d))
        potential.scale.copy_(torch.linspace(0.5, 1.5, d))
    return potential


@pytest.mark.parametrize(("d", "degree"), [(1, 8), (2, 6), (3, 4), (4, 4)])
def test_potential_gradient_is_that_of_the_potential(d: int, degree: int) -> None:
    """Within the data, at the soft edge and far outside."""
    potential = polynomial(d, degree)
    q = torch.cat([size * torch.randn(20, d, dtype=torch.float64) for size in (0.5, 2.0, 30.0)])
    automatic = torch.func.grad(lambda x: potential(x).sum())(q)
    error = (automatic - potential.gradient(q)).abs() / (1 + automatic.abs())
    assert float(error.max()) < 1e-10


def test_neural_gradient_is_that_of_the_potential() -> None:
    potential = NeuralPotential(3).double()
    q = torch.randn(20, 3, dtype=torch.float64)
    automatic = torch.func.grad(lambda x: potential(x).sum())(q)
    assert float((automatic - potential.gradient(q)).abs().max()) < 1e-12


@pytest.mark.parametrize("d", [1, 2])
def test_gradcheck(d: int) -> None:
    mechanism = Mechanism(LearnedMetric(d, width=6).double(), polynomial(d, 5), RayleighDamping(d))
    mechanism.damping.is_active.fill_(True)
    q, qd, force = (torch.randn(3, d, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def accelerations(q: torch.Tensor, qd: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
        return forward_dynamics(mechanism, State(q, qd), force)

    def stepped(q: torch.Tensor, qd: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
        state = step(mechanism, State(q, qd), 0.05, force)
        return torch.cat([state.q, state.qd], dim=-1)

    def energies(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return total_energy(mechanism, State(q, qd))

    assert torch.autograd.gradcheck(accelerations, (q, qd, force))
    assert torch.autograd.gradcheck(stepped, (q, qd, force))
    assert torch.autograd.gradcheck(energies, (q, qd))


def test_gradients_reach_every_parameter() -> None:
    mechanism = Mechanism(LearnedMetric(2).double(), polynomial(2, 4), RayleighDamping(2))
    state = State(torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64))
    with torch.no_grad():
        mechanism.damping.factor.fill_(0.3)
        mechanism.potential.periods[1] = 6.0
    forward_dynamics(mechanism, state).square().sum().backward()
    silent = [name for name, p in mechanism.named_parameters() if p.grad is None or float(p.grad.abs().max()) == 0]
    assert silent == []
