"""Potentials: smooth, bounded below, growing, and simple wherever the data say nothing."""

from __future__ import annotations

import itertools
import math
from typing import Protocol, no_type_check, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import lower_triangle, multiply, replaced

__all__ = ["NeuralPotential", "PolynomialPotential", "PotentialTerms", "term_exponents"]

NUM_HARMONICS = 2
"""Harmonics of a coordinate that comes round: a wheel's imbalance has one, a gentle cogging two."""

# Standard deviations of the weights of each degree in units of the stiffness, for coordinates scaled to [-1, 1]. A
# pendulum that swings by a radians has a^2 / 24 at degree 4 and a^4 / 720 at degree 6.
_PRIOR_OF_DEGREE = {1: 1.0, 3: 0.3, 4: 0.2, 5: 0.06, 6: 0.04, 7: 0.015, 8: 0.01}


@runtime_checkable
class PotentialTerms(Protocol):
    """Further shapes of the potential, such as the height of the mass center that the geometry gives.

    `__call__(q)` is [*, K], `jacobian(q)` is [*, K, d]; q stays within twice the range of the data.
    """

    num_terms: int

    def __call__(self, q: Tensor) -> Tensor: ...

    def jacobian(self, q: Tensor) -> Tensor: ...


def term_exponents(latent_dim: int, degree: int) -> list[tuple[int, ...]]:
    """Exponents of the monomials besides the quadratic ones: linear, then degree 3 and up.

    Up to degree 4 every product for d <= 2 and products of at most two coordinates beyond; above degree 4 pure powers.
    """
    result = []
    for total in (1, *range(3, degree + 1)):
        for combination in itertools.combinations_with_replacement(range(latent_dim), total):
            exponents = tuple(combination.count(axis) for axis in range(latent_dim))
            largest = 1 if total > 4 else 2
            if sum(e > 0 for e in exponents) <= largest:
                result.append(exponents)
    return result


class PolynomialPotential(nn.Module):
    """V(q) = 1/2 y^T K y + sum_k theta_k phi_k(s(y)), y = (q - center) / scale, K = A A^T + floor I.

    phi_k are monomials (degree 1 and 3 to `degree`) of softly clipped coordinates s(y) = y (1 + (y / b)^16)^(-1/16),
    b = 2: within the data (|y| <= 1) s(y) = y to 1e-6, outside s stays below b. So the sum is bounded, the quadratic
    form grows without bound, V is coercive for *every* value of the weights, and beyond the data the thing acts as a
    spring. Weights enter linearly with a Gaussian prior that gets tighter with the degree.

    `is_elastic` [d] says which coordinates have a spring at all: V does not depend on the others (what gravity does to
    them is the metric's), except that those with a finite entry in `periods` [d], which come round to where they were,
    may have the harmonics cos and sin of k 2 pi q_i / period_i, k = 1, 2. `free_stiffness` and `free_weights` say which
    numbers may be moved; all others stay what they are. V is bounded below whatever the numbers.

    `extra` adds terms of the caller's own. All of it is smooth, with gradient in closed form.
    Law: tests/laws/test_dynamics_bounded.py.
    """

    center: Tensor
    scale: Tensor
    exponents: Tensor
    prior_scale: Tensor
    prior_of_term: Tensor
    is_elastic: Tensor
    periods: Tensor
    free_stiffness: Tensor
    free_weights: Tensor
    _power_index: Tensor
    _slope_index: Tensor
    _slope_factor: Tensor

    def __init__(
        self,
        latent_dim: int,
        degree: int = 4,
        extra: PotentialTerms | None = None,
        clip: float = 2.0,
        floor: float = 1e-3,
    ) -> None:
        super().__init__()
        self.latent_dim, self.degree, self.extra, self.clip, self.floor = latent_dim, degree, extra, clip, floor
        exponents = term_exponents(latent_dim, degree)
        num_extra = extra.num_terms if extra is not None else 0
        prior = [_PRIOR_OF_DEGREE.get(sum(e), 0.01) for e in exponents] + [3.0] * num_extra
        self.register_buffer("center", torch.zeros(latent_dim, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(latent_dim, dtype=torch.float64))
        self.register_buffer("exponents", torch.tensor(exponents, dtype=torch.long), persistent=False)
        self.register_buffer("prior_scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("prior_of_term", torch.tensor(prior, dtype=torch.float64), persistent=False)
        rows, columns = torch.tril_indices(latent_dim, latent_dim)
        self.stiffness_factor = nn.Parameter((rows == columns).to(torch.float64))
        self.weights = nn.Parameter(torch.zeros(len(prior), dtype=torch.float64))
        self.harmonics = nn.Parameter(torch.zeros(2 * NUM_HARMONICS * latent_dim, dtype=torch.float64))
        self.register_buffer("is_elastic", torch.ones(latent_dim, dtype=torch.bool))
        self.register_buffer("periods", torch.full((latent_dim,), math.inf, dtype=torch.float64))
        self.register_buffer("free_stiffness", torch.ones(len(rows), dtype=torch.bool))
        self.register_buffer("free_weights", torch.ones(len(prior), dtype=torch.bool))
        self._comes_round: bool | None = None
        columns = degree * torch.arange(latent_dim) + torch.arange(latent_dim)  # where an axis begins in flat powers
        self.register_buffer("_power_index", self.exponents + columns, persistent=False)
        self.register_buffer("_slope_index", (self.exponents - 1).clamp(min=0) + columns, persistent=False)
        self.register_buffer("_slope_factor", self.exponents.to(torch.float64), persistent=False)
        self._fixed_stiffness: Tensor | None = None

    @property
    def num_monomials(self) -> int:
        return self.exponents.shape[0]

    @no_type_check  # in the innermost loop
    def stiffness(self) -> Float[Tensor, "*P d d"]:
        """K in scaled coordinates."""
        if self._fixed_stiffness is not None:
            return self._fixed_stiffness
        factor = lower_triangle(self.stiffness_factor, self.latent_dim)
        return factor @ factor.transpose(-1, -2) + (self.floor * self.prior_scale * self.is_elastic).diag()

    @property
    def has_harmonics(self) -> bool:
        """Whether any coordinate comes round."""
        if self._comes_round is None:
            self._comes_round = bool(torch.isfinite(self.periods).any())
        return self._comes_round

    def admit(
        self,
        is_elastic: Bool[Tensor, " d"],
        groups: Int[Tensor, " d"],
        periods: Float[Tensor, " d"],
        has_products: bool = True,
        highest: int = 8,
    ) -> None:
        """Which coordinates have a spring, which come round (finite periods), and which may share terms.

        Coordinates of different groups share none; without `has_products` nor do others, but in the stiffness. Terms
        above degree `highest` go too. What is not admitted becomes zero and stays so.
        """
        rows, columns = torch.tril_indices(self.latent_dim, self.latent_dim)
        is_turning = torch.isfinite(periods)
        spring = is_elastic & ~is_turning
        self.is_elastic.copy_(spring)
        self.periods.copy_(periods)
        self._comes_round = self._fixed_stiffness = None
        self.free_stiffness.copy_(spring[rows] & spring[columns] & (groups[rows] == groups[columns]))
        used = self.exponents > 0
        allowed = ~(used & ~spring).any(1) & (self.exponents.sum(1) <= highest)
        for group in groups.unique().tolist():
            mixed = (used & (groups == group)).any(1) & (used & (groups != group)).any(1)
            allowed &= ~mixed
        if not has_products:
            allowed &= used.sum(1) <= 1
        extra = torch.ones(self.free_weights.shape[0] - len(allowed), dtype=torch.bool)
        self.free_weights.copy_(torch.cat([allowed, extra]))
        with torch.no_grad():
            self.stiffness_factor.mul_(self.free_stiffness)
            self.weights.mul_(self.free_weights)
            self.harmonics.zero_()

    @no_type_check  # in the innermost loop
    def harmonic_slopes(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B H d"]:
        """Gradients of the harmonics of coordinates that come round: cos and sin of order 1, then 2, ..."""
        rate = torch.where(torch.isfinite(self.periods), 2 * math.pi / self.periods, torch.zeros_like(self.periods))
        orders = torch.arange(1, NUM_HARMONICS + 1, dtype=q.dtype)[:, None]
        phase = orders * (rate * q)[..., None, :]
        slopes = torch.stack([-torch.sin(phase), torch.cos(phase)], dim=-3) * (orders * rate)  # [*, 2, k, d]
        return torch.diag_embed(slopes).flatten(-4, -2)

    @no_type_check  # in the innermost loop
    def _harmonic_energy(self, q: Tensor) -> Tensor:
        rate = torch.where(torch.isfinite(self.periods), 2 * math.pi / self.periods, torch.zeros_like(self.periods))
        orders = torch.arange(1, NUM_HARMONICS + 1, dtype=q.dtype)[:, None]
        phase = orders * (rate * q)[..., None, :]
        values = torch.stack([torch.cos(phase), torch.sin(phase)], dim=-3) * (rate > 0)
        return (values.flatten(-3) * self.harmonics).sum(-1)

    @no_type_check  # in the innermost loop
    def _scaled(self, q: Tensor) -> Tensor:
        return (q - self.center) / self.scale

    @no_type_check  # in the innermost loop
    def _clipped(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """s(y) and ds/dy."""
        square = (y / self.clip) ** 2
        fourth = square * square
        eighth = fourth * fourth
        base = 1 + eighth * eighth
        root = base**-0.0625
        return y * root, root / base

    @no_type_check  # in the innermost loop
    def _powers(self, s: Tensor) -> Tensor:
        """(1, s_i, s_i^2, ...) of every axis in one row, [*, d (degree + 1)]."""
        powers = [torch.ones_like(s), s]
        for _ in range(self.degree - 1):
            powers.append(powers[-1] * s)
        return torch.stack(powers, dim=-1).flatten(-2)

    @no_type_check  # in the innermost loop
    def _monomials(self, s: Tensor) -> Tensor:
        powers = self._powers(s)
        result = powers.index_select(-1, self._power_index[:, 0])
        for axis in range(1, self.latent_dim):
            result = result * powers.index_select(-1, self._power_index[:, axis])
        return result  # [*, K]

    @no_type_check  # in the innermost loop
    def _monomial_slopes(self, s: Tensor) -> Tensor:
        powers, axes = self._powers(s), range(self.latent_dim)
        lowered = [powers.index_select(-1, self._slope_index[:, j]) * self._slope_factor[:, j] for j in axes]
        if self.latent_dim == 1:
            return lowered[0][..., None]
        plain = [powers.index_select(-1, self._power_index[:, j]) for j in axes]
        columns = []
        for j in axes:
            product = lowered[j]
            for axis in axes:
                if axis != j:
                    product = product * plain[axis]
            columns.append(product)
        return torch.stack(columns, dim=-1)  # [*, K, d]

    @no_type_check  # in the innermost loop
    def term_slopes(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B K d"]:
        """Gradient of every weighted term: the columns of the regression of the weights."""
        s, slope = self._clipped(self._scaled(q))
        columns = self._monomial_slopes(s) * (slope / self.scale)[..., None, :]
        if self.extra is not None:
            more = self.extra.jacobian(self.center + self.scale * s) * slope[..., None, :]
            columns = torch.cat([columns, more], dim=-2)
        return columns

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B"]:
        y = self._scaled(q)
        s, _ = self._clipped(y)
        terms = self._monomials(s)
        if self.extra is not None:
            terms = torch.cat([terms, self.extra(self.center + self.scale * s)], dim=-1)
        value = 0.5 * (y * multiply(self.stiffness(), y)).sum(-1) + (terms * self.weights).sum(-1)
        return value + self._harmonic_energy(q) if self.has_harmonics else value

    @no_type_check  # in the innermost loop
    def gradient(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        """dV/dq in closed form."""
        quadratic = multiply(self.stiffness(), self._scaled(q)) / self.scale
        total = quadratic + (self.term_slopes(q) * self.weights[..., None]).sum(-2)
        if self.has_harmonics:
            total = total + (self.harmonic_slopes(q) * self.harmonics[..., None]).sum(-2)
        return total

    def hessian(self, q: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        """Second derivative at one point."""
        result = torch.autograd.functional.jacobian(self.gradient, q)
        assert isinstance(result, Tensor)
        return 0.5 * (result + result.T)

    # ---- free parameters
    @property
    def free_harmonics(self) -> Bool[Tensor, " h"]:
        """Which harmonics may be moved: those of coordinates that come round."""
        return torch.isfinite(self.periods).repeat(2 * NUM_HARMONICS)

    def parameter_vector(self) -> Float[Tensor, " n"]:
        pieces = [self.stiffness_factor.detach()[self.free_stiffness], self.weights.detach()[self.free_weights]]
        return torch.cat([*pieces, self.harmonics.detach()[self.free_harmonics]])

    def with_vector(self, values: Float[Tensor, "*P n"]) -> PolynomialPotential:
        start, moved = 0, {}
        for name, free in (
            ("stiffness_factor", self.free_stiffness),
            ("weights", self.free_weights),
            ("harmonics", self.free_harmonics),
        ):
            count = int(free.sum())
            own: Tensor = getattr(self, name).detach()
            if count == free.shape[0]:
                moved[name] = values[..., start : start + count]
            elif count:
                moved[name] = own.expand(*values.shape[:-1], -1).clone()
                moved[name][..., free] = values[..., start : start + count]
            else:
                moved[name] = own.expand(*values.shape[:-1], -1)
            start += count
        result = replaced(self, **moved)
        result._fixed_stiffness = None
        result._fixed_stiffness = result.stiffness()
        return result

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        free = torch.full_like(self.stiffness_factor.detach(), 10.0) * self.prior_scale.sqrt()
        harmonics = torch.full_like(self.harmonics.detach(), 1.0) * self.prior_scale
        spread = torch.cat(
            [
                free[self.free_stiffness],
                (self.prior_of_term * self.prior_scale)[self.free_weights],
                harmonics[self.free_harmonics],
            ]
        )
        return torch.zeros_like(spread), spread


class NeuralPotential(nn.Module):
    """V(q) = a free network, bounded by tanh, plus a coercive 1/2 k |q|^2: for several rest states.

    Source: LaGSplat, arXiv 2608.16324, section on the potential (MLP plus coercive term).
    """

    def __init__(self, latent_dim: int, width: int = 32, coercivity: float = 0.5) -> None:
        super().__init__()
        self.latent_dim, self.coercivity = latent_dim, coercivity
        self.first = nn.Linear(latent_dim, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1, bias=False)

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B"]:
        hidden = torch.tanh(self.second(torch.tanh(self.first(q))))
        return self.last(hidden)[..., 0] + 0.5 * self.coercivity * (q * q).sum(-1)

    @no_type_check  # in the innermost loop
    def gradient(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B d"]:
        """dV/dq in closed form."""
        first = torch.tanh(self.first(q))
        second = torch.tanh(self.second(first))
        back = (self.last.weight[0] * (1 - second**2)) @ self.second.weight * (1 - first**2)
        return back @ self.first.weight + self.coercivity * q

    def hessian(self, q: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        """Second derivative at one point."""
        result = torch.autograd.functional.jacobian(self.gradient, q)
        assert isinstance(result, Tensor)
        return 0.5 * (result + result.T)
