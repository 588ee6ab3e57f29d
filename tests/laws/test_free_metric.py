"""The inertia of coordinates without known geometry: positive definite, with the Coriolis force that belongs to it."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.dynamics.free_metric import FreeMetric


def random_metric(latent_dim: int, is_chain: bool) -> FreeMetric:
    torch.manual_seed(latent_dim)
    metric = FreeMetric(latent_dim, is_chain)
    return metric.with_vector(torch.randn(metric.entries.shape, dtype=torch.float64))


@pytest.mark.parametrize("is_chain", [False, True])
@pytest.mark.parametrize("latent_dim", [1, 2, 3])
def test_euler_lagrange_residual(latent_dim: int, is_chain: bool) -> None:
    """M q'' + c is d/dt dT/dq' - dT/dq, from the definition of T = 1/2 q'^T M q'."""
    metric = random_metric(latent_dim, is_chain)
    q, qd, qdd = torch.randn(3, latent_dim, dtype=torch.float64)

    def kinetic(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return 0.5 * qd @ metric.mass_matrix(q) @ qd

    momentum = torch.func.grad(kinetic, argnums=1)
    _, rate = torch.func.jvp(momentum, (q, qd), (qd, qdd))
    want = rate - torch.func.grad(kinetic)(q, qd)
    got = metric.mass_matrix(q) @ qdd + metric.coriolis_force(q, qd)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("is_chain", [False, True])
def test_inertia_is_positive_definite_whatever_the_numbers(is_chain: bool) -> None:
    metric = FreeMetric(3, is_chain)
    values = 2 * torch.randn(50, *metric.entries.shape, dtype=torch.float64)
    mass = metric.with_vector(values).mass_matrix(10 * torch.randn(50, 3, dtype=torch.float64))
    assert float(torch.linalg.eigvalsh(mass).min()) > 0


def test_a_double_pendulum_has_the_inertia_of_its_textbook_equation() -> None:
    """m1 = 2, m2 = 1.5 on massless rods of 0.7 and 0.4: M = [[(m1 + m2) a^2, m2 a b cos], [., m2 b^2]], scaled."""
    one, two, a, b = 2.0, 1.5, 0.7, 0.4
    first, cross, second = (one + two) * a * a, two * a * b, two * b * b
    metric = FreeMetric(2, True)
    low = cross / first
    metric = metric.with_vector(torch.tensor([0.5 * math.log(second / first - low**2), low], dtype=torch.float64))
    q = torch.tensor([0.3, -0.8], dtype=torch.float64)
    cosine = math.cos(1.1)
    want = torch.tensor([[first, cross * cosine], [cross * cosine, second]], dtype=torch.float64) / first
    torch.testing.assert_close(metric.mass_matrix(q), want, rtol=0, atol=1e-12)
    structure = metric.structure()
    torch.testing.assert_close(structure.joint_rows, torch.tensor([[1.0, 0.0], [-1.0, 1.0]]).double())
    assert structure.periods.tolist() == [2 * math.pi] * 2
