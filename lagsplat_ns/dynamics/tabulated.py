"""Metrics as polynomials over the range of a path: what a costly metric is replaced by while it is rolled often."""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import Metric

__all__ = ["TabulatedMetric"]

_PAIRS = {1: [(0, 0)], 2: [(0, 0), (0, 1), (1, 1)]}


class TabulatedMetric(nn.Module):
    """M(q) of one or two coordinates as a polynomial of z = (q - center) / half_width on |z_i| <= 1, constant beyond.

    Law: tests/laws/test_fused_acceleration.py.
    """

    center: Tensor
    half_width: Tensor
    coefficients: Tensor
    first: Tensor
    second: Tensor

    def __init__(self, center: Float[Tensor, " d"], half_width: Float[Tensor, " d"], masses: Tensor) -> None:
        """masses: coefficients [K, P] (d = 1) or [K, K, P] (d = 2) of powers of z; P pairs (i <= j) of M."""
        super().__init__()
        d = center.shape[0]
        self.latent_dim, self.order = d, masses.shape[0]
        self.register_buffer("center", center)
        self.register_buffer("half_width", half_width)
        powers = torch.arange(1, self.order, dtype=masses.dtype)
        slopes = []  # dM/dq_k
        for k in range(d):
            slope = torch.zeros_like(masses).transpose(0, k)
            slope[:-1] = masses.transpose(0, k)[1:] * powers.view(-1, *[1] * d) / half_width[k]
            slopes.append(slope.transpose(0, k))
        where = {pair: index for index, pair in enumerate(_PAIRS[d])}

        def slope_of(i: int, j: int, k: int) -> Tensor:
            return slopes[k][..., where[min(i, j), max(i, j)]]

        columns = list(masses.unbind(-1))
        for i in range(d):
            for j, k in _PAIRS[d]:  # c_i = sum over j <= k of this times q'_j q'_k
                symbol = 0.5 * (slope_of(i, j, k) + slope_of(i, k, j) - slope_of(j, k, i))
                columns.append(symbol if j == k else 2 * symbol)
        orders = torch.arange(self.order)
        self.register_buffer("first", orders.repeat_interleave(self.order), persistent=False)
        self.register_buffer("second", orders.repeat(self.order), persistent=False)
        coefficients = torch.stack(columns, dim=-1).flatten(0, -2)
        if d == 2:  # powers of high total degree do not occur
            kept = self.first + self.second < self.order
            self.first, self.second, coefficients = self.first[kept], self.second[kept], coefficients[kept]
        self.register_buffer("coefficients", coefficients)
        self._latest: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(
        cls, metric: Metric, low: Float[Tensor, " d"], high: Float[Tensor, " d"], tolerance: float = 1e-6
    ) -> TabulatedMetric | None:
        """The cheapest table of a metric on a box, or None where degree 16 errs by more than `tolerance`.

        For d = 2 thirty times as much is allowed. The tolerance is relative to the largest mass, and holds for M and
        for the Coriolis force of one half width per second.
        """
        d, double = low.shape[0], torch.float64
        if d not in _PAIRS:
            return None
        center, half = 0.5 * (low + high).to(double), 0.5 * (high - low).to(double)
        for degree in (4, 6, 8, 10, 12, 14, 16):
            z = torch.cos(torch.linspace(0, torch.pi, 3 * degree + 2, dtype=double))
            grid = torch.cartesian_prod(*[z] * d).view(-1, d)
            mass = metric.mass_matrix(center + half * grid).detach()
            values = torch.stack([mass[:, i, j] for i, j in _PAIRS[d]], dim=-1).view(*[len(z)] * d, -1)
            orders = torch.arange(degree + 1)
            chebyshev = torch.cos(torch.acos(z)[:, None] * orders)
            inverse, powers = torch.linalg.pinv(chebyshev), torch.linalg.pinv(z[:, None] ** orders) @ chebyshev
            fitted = torch.einsum("az,z...->a...", inverse, values)
            if d == 1:
                fitted = powers @ fitted
            else:
                fitted = torch.einsum("by,ay...->ab...", inverse, fitted)
                fitted = fitted * (orders[:, None, None] + orders[:, None] <= degree)
                fitted = torch.einsum("ai,bj,ij...->ab...", powers, powers, fitted)
            table = cls(center, half, fitted)
            if table._error(metric) <= (tolerance if d == 1 else 30 * tolerance):
                return table
        return None

    def _error(self, metric: Metric) -> float:
        d = self.latent_dim
        check = torch.linspace(-1, 1, 41 if d == 1 else 23, dtype=torch.float64)
        q = self.center + self.half_width * torch.cartesian_prod(*[check] * d).view(-1, d)
        mass = metric.mass_matrix(q).detach()
        size = float((mass * self.half_width * self.half_width[:, None]).abs().max())
        errors = [(self.mass_matrix(q) - mass) * self.half_width * self.half_width[:, None]]
        for direction in [*torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)]:
            qd = (direction * self.half_width).expand_as(q)
            errors.append((self.coriolis_force(q, qd) - metric.coriolis_force(q, qd).detach()) * self.half_width)
        return max(float(error.abs().max()) for error in errors) / size

    @no_type_check  # in the innermost loop
    def values(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B C"]:
        """Entries (i <= j) of M, then for every i the factors of q'_j q'_k (j <= k) in the Coriolis force."""
        if self._latest is not None and self._latest[0] is q:
            return self._latest[1]
        z = (q - self.center) / self.half_width
        inside = z.clamp(-1, 1)
        if self.latent_dim == 1:
            result = self.coefficients[-1]
            for row in self.coefficients[:-1].flip(0):
                result = row.addcmul(result, inside)
        else:
            flat = inside.flatten(0, -2).T  # powers run along rows, which are long
            powers = torch.cat([torch.ones_like(flat)[None], flat.expand(self.order - 1, -1, -1).cumprod(0)])
            basis = powers[:, 0].index_select(0, self.first) * powers[:, 1].index_select(0, self.second)
            result = (self.coefficients.T @ basis).T.unflatten(0, z.shape[:-1])
        is_out = (z != inside).any(-1, keepdim=True)
        if bool(is_out.any()):
            count = len(_PAIRS[self.latent_dim])
            result = torch.cat([result[..., :count], result[..., count:] * ~is_out], dim=-1)
        self._latest = (q, result)
        return result

    @no_type_check  # in the innermost loop
    def mass_matrix(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d d"]:
        values = self.values(q)
        if self.latent_dim == 1:
            return values[..., :1, None]
        return values.index_select(-1, torch.tensor([0, 1, 1, 2])).unflatten(-1, (2, 2))

    @no_type_check  # in the innermost loop
    def coriolis_force(self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        values = self.values(q)
        if self.latent_dim == 1:
            return values[..., 1:] * qd * qd
        a, b = qd[..., :1], qd[..., 1:]
        products = torch.cat([a * a, a * b, b * b], dim=-1)
        return (values[..., 3:].unflatten(-1, (2, 3)) * products[..., None, :]).sum(-1)
