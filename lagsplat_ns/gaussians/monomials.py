"""Multivariate monomials of the latent coordinates with their first and second derivatives in closed form."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def monomial_exponents(latent_dim: int, degree: int) -> Int[Tensor, "K d"]:
    """All exponents of total degree 0..degree, constant first, then ordered by degree."""
    rows = [
        [combo.count(axis) for axis in range(latent_dim)]
        for total in range(degree + 1)
        for combo in itertools.combinations_with_replacement(range(latent_dim), total)
    ]
    return torch.tensor(rows, dtype=torch.long)


def _evaluate(q: Tensor, exponents: Tensor) -> Tensor:
    """Products of powers: q [*, d], exponents [..., d] (negative ones count as zero coefficients elsewhere)."""
    if q.shape[-1] == 1:
        return q.unflatten(-1, (1,) * (exponents.dim() - 1)) ** exponents[..., 0].clamp(min=0)
    highest = int(exponents.max()) if exponents.numel() else 0
    powers = [torch.ones_like(q)]
    for _ in range(max(highest, 0)):
        powers.append(powers[-1] * q)
    table = torch.stack(powers, dim=-1)  # [*, d, highest + 1]
    result = None
    for axis in range(q.shape[-1]):
        factor = table[..., axis, :][..., exponents[..., axis].clamp(min=0)]  # [*, ...]
        result = factor if result is None else result * factor
    assert result is not None
    return result


class Monomials(nn.Module):
    """The basis phi_k(q) = prod_i q_i^e_ki up to a total degree, with d phi and d2 phi."""

    exponents: Tensor
    first_exponents: Tensor
    first_factors: Tensor
    second_exponents: Tensor
    second_factors: Tensor

    def __init__(self, latent_dim: int, degree: int) -> None:
        super().__init__()
        exponents = monomial_exponents(latent_dim, degree)  # [K, d]
        unit = torch.eye(latent_dim, dtype=torch.long)
        first = exponents[:, None, :] - unit  # [K, d, d]
        second = first[:, :, None, :] - unit  # [K, d, d, d]
        first_factors = exponents.clone()  # d/dq_j brings down e_kj
        second_factors = exponents[:, :, None] * first.clamp(min=0)[:, :, :]  # then (e_k - 1_j)_l
        self.latent_dim, self.degree = latent_dim, degree
        for name, value in (
            ("exponents", exponents),
            ("first_exponents", first),
            ("first_factors", first_factors),
            ("second_exponents", second),
            ("second_factors", second_factors),
        ):
            self.register_buffer(name, value, persistent=False)

    @property
    def num_terms(self) -> int:
        return self.exponents.shape[0]

    def forward(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B K"]:
        return _evaluate(q, self.exponents)

    def jacobian(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B K d"]:
        return self.first_factors * _evaluate(q, self.first_exponents)

    def hessian(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B K d d"]:
        return self.second_factors * _evaluate(q, self.second_exponents)
