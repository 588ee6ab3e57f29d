"""Laws of the equation of motion, held by random mechanisms in double precision."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.dynamics.analytic import DoublePendulumMetric, double_pendulum
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.energy import (
    kinetic_energy,
    lagrangian,
    momentum,
    rayleigh_dissipation,
    total_energy,
)
from lagsplat_ns.dynamics.equations import forward_dynamics, inverse_dynamics
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric, LearnedMetric
from lagsplat_ns.dynamics.potential import NeuralPotential, PolynomialPotential
from lagsplat_ns.types import State

BATCH = 16


def random_mechanism(kind: str, d: int) -> Mechanism:
    generator = torch.Generator().manual_seed(d)
    root = torch.randn(d, d, generator=generator, dtype=torch.float64)
    metrics = {
        "constant": ConstantMetric(root @ root.T + torch.eye(d, dtype=torch.float64)),
        "learned": LearnedMetric(d).double(),
        "geometric": DoublePendulumMetric(),
    }
    potential = NeuralPotential(d).double() if kind == "learned" else PolynomialPotential(d, degree=6)
    damping, inputs = RayleighDamping(d), InputMap(d, 3, "general")
    with torch.no_grad():
        damping.is_active.fill_(True)
        damping.log_rates.copy_(torch.tensor([0.3, 0.2, 0.1]).log())
        damping.slow_speed.fill_(0.05)
        for part in (damping.factor, inputs.weights, *potential.parameters()):
            part.add_(0.3 * torch.randn(part.shape, generator=generator, dtype=torch.float64))
    return Mechanism(metrics[kind], potential, damping, inputs).requires_grad_(False)


CASES = [("constant", 1), ("constant", 3), ("learned", 1), ("learned", 2), ("learned", 4), ("geometric", 2)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    return random_mechanism(*request.param)


def random_state(d: int) -> State:
    return State(torch.randn(BATCH, d, dtype=torch.float64), torch.randn(BATCH, d, dtype=torch.float64))


def test_power_balance(mechanism: Mechanism) -> None:
    """dE/dt = q' . (Q - C q') for any generalized force Q."""
    state = random_state(mechanism.latent_dim)
    force, u = torch.randn_like(state.q), torch.randn(BATCH, 3, dtype=torch.float64)
    qdd = forward_dynamics(mechanism, state, force, u)

    def energy(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return total_energy(mechanism, State(q, qd))

    _, rate = torch.func.jvp(energy, (state.q, state.qd), (state.qd, qdd))
    applied = force + mechanism.input_force(state.q, u) + mechanism.dissipative_force(state.q, state.qd)
    power = (state.qd * applied).sum(-1)
    assert float((rate - power).abs().max()) < 1e-9 * float(power.abs().max())


def test_euler_lagrange_residual(mechanism: Mechanism) -> None:
    """d/dt dL/dq' - dL/dq = Q - C q', from the definition of L by automatic differentiation alone."""
    state = random_state(mechanism.latent_dim)
    force = torch.randn_like(state.q)
    qdd = forward_dynamics(mechanism, state, force)

    def by_rate(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda rate: lagrangian(mechanism, State(q, rate)).sum())(qd)

    _, left = torch.func.jvp(by_rate, (state.q, state.qd), (state.qd, qdd))
    by_position = torch.func.grad(lambda q: lagrangian(mechanism, State(q, state.qd)).sum())(state.q)
    residual = left - by_position - force - mechanism.dissipative_force(state.q, state.qd)
    assert float(residual.abs().max()) < 1e-9 * float(left.abs().max())


def test_inverse_dynamics_undoes_forward_dynamics(mechanism: Mechanism) -> None:
    state = random_state(mechanism.latent_dim)
    force, u = torch.randn_like(state.q), torch.randn(BATCH, 3, dtype=torch.float64)
    again = inverse_dynamics(mechanism, state, forward_dynamics(mechanism, state, force, u), u)
    assert float((again - force).abs().max()) < 1e-10


def test_dissipation_is_never_negative(mechanism: Mechanism) -> None:
    state = random_state(mechanism.latent_dim)
    lost = rayleigh_dissipation(mechanism, state)
    least = 0.5 * mechanism.damping.floor * 2 * kinetic_energy(mechanism, state)
    assert bool((lost >= least).all())


def test_momentum_is_the_slope_of_the_lagrangian(mechanism: Mechanism) -> None:
    state = random_state(mechanism.latent_dim)
    slope = torch.func.grad(lambda qd: lagrangian(mechanism, State(state.q, qd)).sum())(state.qd)
    assert float((slope - momentum(mechanism, state)).abs().max()) < 1e-12


class _Linear(torch.nn.Module):
    """A part of a mechanism seen through q = A y."""

    def __init__(self, whole: Mechanism, map_: torch.Tensor) -> None:
        super().__init__()
        self.whole, self.map, self.latent_dim = whole, map_, map_.shape[0]

    def mass_matrix(self, y: torch.Tensor) -> torch.Tensor:
        return self.map.T @ self.whole.mass_matrix(y @ self.map.T) @ self.map

    def coriolis_force(self, y: torch.Tensor, yd: torch.Tensor) -> torch.Tensor:
        return self.whole.coriolis_force(y @ self.map.T, yd @ self.map.T) @ self.map

    def gradient(self, y: torch.Tensor) -> torch.Tensor:
        return -self.whole.conservative_force(y @ self.map.T) @ self.map

    def forward(self, yd: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        inverse = torch.linalg.inv(self.map)
        return self.map.T @ self.whole.damping(yd @ self.map.T, inverse.T @ mass @ inverse) @ self.map


def test_change_of_coordinates() -> None:
    """The same motion, and the same answer to a push, in any latent gauge: q'' = A y'', tau_y = A^T tau_q."""
    whole = double_pendulum()
    map_ = torch.tensor([[1.3, 0.4], [-0.7, 0.9]], dtype=torch.float64)
    part = _Linear(whole, map_)
    seen = Mechanism(part, part, part)
    state = random_state(2)
    force = torch.randn_like(state.q)
    inverse = torch.linalg.inv(map_).T
    other = State(state.q @ inverse, state.qd @ inverse)
    expected = forward_dynamics(whole, state, force)
    found = forward_dynamics(seen, other, force @ map_) @ map_.T
    assert float((found - expected).abs().max()) < 1e-10 * float(expected.abs().max())


def test_edited_physics_scales_one_term_each() -> None:
    whole, state = double_pendulum(), random_state(2)
    half = whole.with_scales(potential=0.5, damping=3.0)
    assert torch.equal(half.conservative_force(state.q), 0.5 * whole.conservative_force(state.q))
    ratio = half.dissipative_force(state.q, state.qd) / whole.dissipative_force(state.q, state.qd)
    assert float((ratio - 3).abs().max()) < 1e-12
    heavy = whole.with_scales(mass=4.0)
    difference = heavy.dissipative_force(state.q, state.qd) - whole.dissipative_force(state.q, state.qd)
    assert float(difference.abs().max()) < 1e-14
    assert torch.equal(heavy.mass_matrix(state.q), 4 * whole.mass_matrix(state.q))


@pytest.mark.parametrize("kind", ["constant", "learned"])
@torch.no_grad()
def test_batched_parameters_match_one_by_one(kind: str) -> None:
    """with_vector on a batch of parameters gives what each vector gives alone: shooting rests on it."""
    whole = random_mechanism(kind, 3)
    state = random_state(3)
    vectors = whole.parameter_vector() + 0.1 * torch.randn(5, whole.parameter_vector().shape[0], dtype=torch.float64)
    u = torch.randn(BATCH, 3, dtype=torch.float64)
    together = forward_dynamics(
        whole.with_vector(vectors[:, None]), State(state.q.expand(5, -1, -1), state.qd.expand(5, -1, -1)), None, u
    )
    for k in range(5):
        alone = forward_dynamics(whole.with_vector(vectors[k]), state, None, u)
        assert float((together[k] - alone).abs().max()) < 1e-11
    whole.set_vector(vectors[2])
    torch.testing.assert_close(whole.parameter_vector(), vectors[2], rtol=0, atol=1e-14)
    written = forward_dynamics(whole, state, None, u)
    assert float((together[2] - written).abs().max()) < 1e-11
