"""The mass matrix that moving Gaussians imply: against positions differentiated by autograd."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.gaussians.bases import MotionBases, motion_gram, placement
from lagsplat_ns.gaussians.metric import GeometricMetric
from lagsplat_ns.gaussians.monomials import Monomials


def random_bases(latent_dim: int, num_bases: int, degree: int, has_pivots: bool) -> MotionBases:
    torch.manual_seed(latent_dim + 10 * num_bases + degree)
    bases = MotionBases(latent_dim, num_bases, degree, has_pivots).double()
    with torch.no_grad():
        for parameter in bases.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=torch.float64))
        bases.origin.copy_(torch.tensor([0.2, -0.1]))
    return bases


def random_points(num_bases: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    canonical = torch.randn(30, 2, dtype=torch.float64)
    skinning = torch.softmax(torch.randn(30, num_bases, dtype=torch.float64), -1)
    return canonical, skinning, torch.rand(30, dtype=torch.float64) + 0.1


CASES = [(1, 1, 1, True), (1, 1, 4, False), (2, 3, 3, False), (3, 2, 2, False), (2, 2, 2, True)]


@pytest.mark.parametrize("latent_dim, num_bases, degree, has_pivots", CASES)
def test_metric_is_that_of_the_points(latent_dim: int, num_bases: int, degree: int, has_pivots: bool) -> None:
    """1/2 q'^T M q' and the Euler-Lagrange left side from positions alone, by autograd, to 1e-10."""
    bases = random_bases(latent_dim, num_bases, degree, has_pivots)
    canonical, skinning, weights = random_points(num_bases)
    placements = placement(canonical, bases.origin, skinning)
    with torch.no_grad():
        metric = GeometricMetric(bases, motion_gram(placements, weights), epsilon=0.0)
    q, qd = torch.randn(2, latent_dim, dtype=torch.float64)

    def positions(q: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ncj,j->nc", placements, bases(q)) + bases.origin

    def mass(q: torch.Tensor) -> torch.Tensor:
        jac = torch.autograd.functional.jacobian(positions, q, create_graph=True)
        return torch.einsum("n,nci,ncj->ij", weights / weights.sum(), jac, jac)

    torch.testing.assert_close(metric.mass_matrix(q), mass(q), rtol=0, atol=1e-10)
    derivative = torch.autograd.functional.jacobian(mass, q)  # [i, j, k]
    along = torch.einsum("ijk,j,k->i", derivative, qd, qd)
    coriolis = along - 0.5 * torch.einsum("jki,j,k->i", derivative, qd, qd)
    torch.testing.assert_close(metric.coriolis_force(q, qd), coriolis, rtol=0, atol=1e-10)


@pytest.mark.parametrize("latent_dim, num_bases, degree, has_pivots", CASES)
def test_closed_form_derivatives(latent_dim: int, num_bases: int, degree: int, has_pivots: bool) -> None:
    bases = random_bases(latent_dim, num_bases, degree, has_pivots)
    q, qd = torch.randn(2, latent_dim, dtype=torch.float64)
    slope = torch.autograd.functional.jacobian(bases, q)
    torch.testing.assert_close(bases.jacobian(q), slope, rtol=0, atol=1e-12)
    _, bent = torch.autograd.functional.jvp(lambda x: bases.jacobian(x) @ qd, q, qd)
    torch.testing.assert_close(bases.curvature(q, qd), bent, rtol=0, atol=1e-11)


def test_a_pivot_stays_where_it_is() -> None:
    bases = random_bases(1, 1, 3, has_pivots=True)
    pivot = bases.pivots.detach()
    placements = placement(pivot, bases.origin, torch.ones(1, 1, dtype=torch.float64))
    for value in (-2.0, 0.0, 1.3):
        where = torch.einsum("ncj,j->nc", placements, bases(torch.tensor([value], dtype=torch.float64)))
        torch.testing.assert_close(where + bases.origin, pivot, rtol=0, atol=1e-14)


@pytest.mark.parametrize("latent_dim, degree", [(1, 5), (2, 3), (4, 2)])
def test_monomial_derivatives(latent_dim: int, degree: int) -> None:
    phi, q = Monomials(latent_dim, degree), torch.randn(latent_dim, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(phi.jacobian(q), jacobian(phi, q), rtol=0, atol=1e-12)
    torch.testing.assert_close(phi.hessian(q).to(q), jacobian(phi.jacobian, q), rtol=0, atol=1e-12)
