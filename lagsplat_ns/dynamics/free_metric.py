"""The inertia of coordinates whose geometry is not known: as many numbers as it takes, found with the forces."""

from __future__ import annotations

import math
from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import lower_triangle, multiply, replaced
from lagsplat_ns.dynamics.structure import Structure

__all__ = ["FreeMetric"]


class FreeMetric(nn.Module):
    """M_ij(q) = A_ij, or A_ij cos(q_i - q_j) for a planar chain whose q are the absolute angles of its links.

    A = L L^T is positive definite, and so is M: the matrix of cosines is a Gram matrix of unit vectors. L_00 = 1 fixes
    the scale that no motion can tell. is_chain: the links hang on each other in order, each free to turn; any planar
    chain of rigid links about a fixed pivot whose centers of mass lie on the lines between joints has this inertia.

    Free parameters: logarithms of the other diagonal entries of L, then the entries below the diagonal.
    Law: tests/laws/test_free_metric.py, Euler-Lagrange residual.
    """

    entries: Tensor

    def __init__(self, latent_dim: int, is_chain: bool = False) -> None:
        super().__init__()
        self.latent_dim, self.is_chain = latent_dim, is_chain
        self.register_buffer("entries", torch.zeros(latent_dim * (latent_dim + 1) // 2 - 1, dtype=torch.float64))
        rows, columns = torch.tril_indices(latent_dim, latent_dim)
        self._diagonal = [k for k in range(1, len(rows)) if rows[k] == columns[k]]
        self._below = [k for k in range(1, len(rows)) if rows[k] != columns[k]]

    @property
    def is_constant(self) -> bool:
        """Whether M is the same everywhere."""
        return not self.is_chain or self.latent_dim == 1

    def structure(self) -> Structure:
        """Links of a chain turn freely in joints; of other coordinates nothing is known."""
        d = self.latent_dim
        rows = torch.eye(d, dtype=torch.float64)
        if self.is_chain:
            rows -= torch.diag(torch.ones(d - 1, dtype=torch.float64), -1)
        period = 2 * math.pi if self.is_chain else math.inf
        return Structure(rows, torch.zeros(d, dtype=torch.long), torch.full((d,), period, dtype=torch.float64))

    def _inertia(self) -> Tensor:
        """A, [*, d, d]."""
        count = len(self._diagonal)
        triangle = self.entries.new_ones(*self.entries.shape[:-1], 1 + self.entries.shape[-1])
        triangle[..., self._diagonal] = self.entries[..., :count].exp()
        triangle[..., self._below] = self.entries[..., count:]
        root = lower_triangle(triangle, self.latent_dim)
        return root @ root.transpose(-1, -2)

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*C d d"]:
        inertia = self._inertia()
        if not self.is_chain:
            return inertia.expand(*torch.broadcast_shapes(q.shape[:-1], inertia.shape[:-2]), -1, -1)
        return inertia * torch.cos(q[..., :, None] - q[..., None, :])

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*C d"]:
        """c_i = sum_j A_ij sin(q_i - q_j) q'_j^2."""
        if not self.is_chain:
            return torch.zeros_like(q)
        return multiply(self._inertia() * torch.sin(q[..., :, None] - q[..., None, :]), qd * qd)

    # ---- free parameters
    def parameter_vector(self) -> Float[Tensor, " n"]:
        return self.entries.detach().clone()

    def with_vector(self, values: Float[Tensor, "*P n"]) -> FreeMetric:
        return replaced(self, entries=values)

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        spread = torch.ones_like(self.entries)
        spread[: len(self._diagonal)] = 1.5
        return torch.zeros_like(spread), spread
