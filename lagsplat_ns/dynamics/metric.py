"""Metrics: the inertia M(q) of the latent coordinates and the Coriolis force that belongs to it.

With T = 1/2 q'^T M(q) q', Lagrange's equations give M q'' + c(q, q') with
c_i = sum_jk (dM_ij/dq_k - 1/2 dM_jk/dq_i) q'_j q'_k.
"""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.compiled.terms import MetricTerms
from lagsplat_ns.dynamics.parts import lower_triangle

__all__ = ["ConstantMetric", "LearnedMetric"]


class ConstantMetric(nn.Module):
    """M(q) = M, positive definite: what arc length gives for one degree of freedom.

    Raises: ValueError if M is not a symmetric positive definite matrix.
    """

    mass: Tensor

    def __init__(self, mass: Float[Tensor, "d d"]) -> None:
        super().__init__()
        asymmetry = float((mass - mass.T).abs().max())
        if asymmetry > 1e-9 * float(mass.abs().max()) or float(torch.linalg.eigvalsh(mass)[0]) <= 0:
            raise ValueError(
                f"A mass matrix must be symmetric and positive definite, but got {mass.tolist()}.\n"
                "  Pass `0.5 * (mass + mass.T)`, and check that no coordinate is without inertia."
            )
        self.register_buffer("mass", mass.clone())

    @property
    def latent_dim(self) -> int:
        return self.mass.shape[-1]

    def kernel_terms(self) -> MetricTerms:
        """The inertia as the compiled dynamics read it."""
        return MetricTerms(mass=self.mass)

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        return self.mass.to(q.dtype).expand(*q.shape[:-1], -1, -1)

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        return torch.zeros_like(q)


class LearnedMetric(nn.Module):
    """M(q) = L(q) L(q)^T + epsilon I, L from a small network with a constant tangent far from the data.

    The derivative of L is propagated in closed form, layer by layer, so that the Coriolis force needs no autograd.
    Source: LaGSplat, arXiv 2608.16324, learned inertia; Lutter et al., "Deep Lagrangian Networks", eq. 8.
    Law: tests/laws/test_dynamics.py, Euler-Lagrange residual.
    """

    def __init__(self, latent_dim: int, width: int = 32, epsilon: float = 1e-2) -> None:
        super().__init__()
        self.latent_dim, self.epsilon = latent_dim, epsilon
        entries = latent_dim * (latent_dim + 1) // 2
        self.first = nn.Linear(latent_dim, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, entries)
        with torch.no_grad():
            self.last.weight.mul_(0.1)
            rows, columns = torch.tril_indices(latent_dim, latent_dim)
            self.last.bias.copy_((rows == columns).to(self.last.bias.dtype))

    def _factor(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """L [*, d, d] and dL/dq_k [*, d, d, d] (k last but two)."""
        h, slope = q, torch.eye(self.latent_dim, dtype=q.dtype, device=q.device)
        for layer in (self.first, self.second):
            h = torch.tanh(layer(h))
            slope = (slope @ layer.weight.T) * (1 - h**2)[..., None, :]  # [*, d, width]
        entries, slopes = self.last(h), slope @ self.last.weight.T
        return lower_triangle(entries, self.latent_dim), lower_triangle(slopes, self.latent_dim)

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        factor, _ = self._factor(q)
        unit = torch.eye(self.latent_dim, dtype=q.dtype, device=q.device)
        return factor @ factor.transpose(-1, -2) + self.epsilon * unit

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        factor, slopes = self._factor(q)
        half = slopes @ factor.transpose(-1, -2)[..., None, :, :]  # [*, k, i, j]
        derivative = half + half.transpose(-1, -2)  # dM/dq_k
        along = torch.einsum("...kij,...j,...k->...i", derivative, qd, qd)
        return along - 0.5 * torch.einsum("...kij,...i,...j->...k", derivative, qd, qd)
