"""The acceleration that identification rolls is that of the mechanism, whichever way it is computed."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.dynamics.analytic import DoublePendulumMetric
from lagsplat_ns.dynamics.damping import RayleighDamping
from lagsplat_ns.dynamics.fused import fused_acceleration
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.integrators import driven_acceleration
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric, LearnedMetric
from lagsplat_ns.dynamics.potential import PolynomialPotential
from lagsplat_ns.dynamics.tabulated import TabulatedMetric


class Swelling(torch.nn.Module):
    """M(q) = 1.2 + 0.5 sin(q)."""

    latent_dim = 1

    def mass_matrix(self, q: torch.Tensor) -> torch.Tensor:
        return (1.2 + 0.5 * torch.sin(q))[..., None]

    def coriolis_force(self, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return 0.25 * torch.cos(q) * qd * qd


METRICS = {1: Swelling(), 2: DoublePendulumMetric()}


def box(d: int, size: float) -> tuple[torch.Tensor, torch.Tensor]:
    half = torch.full((d,), size, dtype=torch.float64)
    return -half, half + 0.1


def mechanism_of(metric: torch.nn.Module, d: int, has_all_damping: bool) -> Mechanism:
    potential, damping, inputs = PolynomialPotential(d, 8), RayleighDamping(d), InputMap(d, 2, "general")
    with torch.no_grad():
        potential.center.fill_(0.2)
        potential.scale.fill_(0.7)
        potential.weights.copy_(torch.randn_like(potential.weights))
        damping.is_active[1:] = has_all_damping
        damping.factor.copy_(torch.randn_like(damping.factor))
        inputs.weights.copy_(torch.randn_like(inputs.weights))
    return Mechanism(metric, potential, damping, inputs).requires_grad_(False)


@pytest.mark.parametrize("has_all_damping", [False, True])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kind", ["constant", "table"])
def test_fused_equals_plain_for_a_batch_of_mechanisms(kind: str, d: int, has_all_damping: bool) -> None:
    table = TabulatedMetric.of(METRICS[d], *box(d, 0.5))
    assert table is not None
    root = torch.eye(d, dtype=torch.float64) + 0.3
    constant = ConstantMetric(root @ root.T)
    whole = mechanism_of(constant if kind == "constant" else table, d, has_all_damping)
    vector = whole.parameter_vector()
    batch = whole.with_vector(vector + 0.1 * torch.randn(5, 1, vector.shape[0], dtype=torch.float64))
    q, qd = torch.randn(5, 40, d, dtype=torch.float64), 3 * torch.randn(5, 40, d, dtype=torch.float64)
    t = torch.rand(40, dtype=torch.float64)

    def inputs(time: torch.Tensor) -> torch.Tensor:
        return torch.stack([time, time**2], dim=-1)

    for mechanism in (batch, whole):
        expected = driven_acceleration(mechanism, None, inputs)(q, qd, t)
        found = fused_acceleration(mechanism, inputs)(q, qd, t)
        assert found.shape == expected.shape
        assert float((found - expected).abs().max()) < 1e-11 * float(expected.abs().max())


@pytest.mark.parametrize("d", [1, 2])
def test_table_of_a_smooth_metric_is_exact_to_a_millionth(d: int) -> None:
    metric = METRICS[d]
    low, high = box(d, 0.5)
    table = TabulatedMetric.of(metric, low, high)
    assert table is not None
    q = low + (high - low) * torch.rand(333, d, dtype=torch.float64)
    qd = torch.randn_like(q)
    mass, force = metric.mass_matrix(q), metric.coriolis_force(q, qd)
    assert float((table.mass_matrix(q) - mass).abs().max()) < 2e-6 * float(mass.abs().max())
    assert float((table.coriolis_force(q, qd) - force).abs().max()) < 1e-5 * float(force.abs().max())


def test_no_table_of_what_a_polynomial_cannot_follow() -> None:
    torch.manual_seed(0)
    rough = LearnedMetric(1).double().requires_grad_(False)
    rough.first.weight.mul_(60.0)
    assert TabulatedMetric.of(rough, *box(1, 1.0)) is None
