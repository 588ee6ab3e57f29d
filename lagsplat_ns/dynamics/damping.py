"""Damping: forces against the motion that take energy out at every speed."""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import lower_triangle, replaced

__all__ = ["RayleighDamping"]


class RayleighDamping(nn.Module):
    """C(q, q') = (c_0 + c_1 |q'|_M + c_2 / |q'|_M) M(q) + G, each coefficient >= 0, c_0 >= floor > 0, G = R R^T.

    c_0 (1/s) is viscous damping in the metric of the motion, c_1 the drag of air at speed (quadratic), c_2 dry
    friction; |q'|_M = sqrt(q'^T M q' + slow_speed^2), so all of it is smooth. C is positive definite for
    every value of the parameters: energy always decays. Drag and
    friction are switched on only where the data ask for them.

    Free parameters: log of the coefficients that are switched on, then the entries of R if d > 1.
    Law: tests/laws/test_dynamics.py, power balance.
    """

    log_rates: Tensor
    is_active: Tensor
    slow_speed: Tensor
    prior_log_rates: Tensor
    prior_factor: Tensor

    def __init__(self, latent_dim: int, rate: float = 0.1, floor: float = 1e-3) -> None:
        super().__init__()
        self.latent_dim, self.floor = latent_dim, floor
        logs = torch.tensor([rate, 1e-2, 1e-2], dtype=torch.float64).log()
        self.log_rates = nn.Parameter(logs.clone())
        self.factor = nn.Parameter(torch.zeros(latent_dim * (latent_dim + 1) // 2, dtype=torch.float64))
        self.register_buffer("is_active", torch.tensor([True, False, False]))
        self.register_buffer("slow_speed", torch.ones((), dtype=torch.float64) * 1e-3)
        self.register_buffer("prior_log_rates", logs.clone())
        self.register_buffer("prior_factor", torch.ones((), dtype=torch.float64))
        self._fixed_extra: Tensor | None = None

    @no_type_check  # in the innermost loop
    def forward(self, qd: Float[Tensor, "*B d"], mass: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B d d"]:
        """C from the rates and the mass matrix where the thing is."""
        rates = torch.exp(self.log_rates)
        total = rates[..., 0] + self.floor
        drag, dry = self.active_kinds
        if drag or dry:
            speed = (torch.einsum("...i,...ij,...j->...", qd, mass, qd) + self.slow_speed**2).sqrt()
            if drag:
                total = total + rates[..., 1] * speed
            if dry:
                total = total + rates[..., 2] / speed
        result = total[..., None, None] * mass
        if self.latent_dim > 1:
            result = result + self.extra_damping()
        return result

    @no_type_check  # in the innermost loop
    def extra_damping(self) -> Float[Tensor, "*P d d"]:
        """G, beyond the metric of the motion."""
        if self._fixed_extra is not None:
            return self._fixed_extra
        factor = lower_triangle(self.factor, self.latent_dim)
        return factor @ factor.transpose(-1, -2)

    @property
    def active_kinds(self) -> tuple[bool, bool]:
        """Whether drag and dry friction are switched on."""
        return bool(self.is_active[1]), bool(self.is_active[2])

    # ---- free parameters
    def parameter_vector(self) -> Float[Tensor, " n"]:
        chosen = self.log_rates.detach()[self.is_active]
        return torch.cat([chosen, self.factor.detach()]) if self.latent_dim > 1 else chosen

    def with_vector(self, values: Float[Tensor, "*P n"]) -> RayleighDamping:
        count = int(self.is_active.sum())
        logs = self.log_rates.detach().expand(*values.shape[:-1], 3).clone()
        logs[..., self.is_active] = values[..., :count]
        if self.latent_dim == 1:
            return replaced(self, log_rates=logs)
        result = replaced(self, log_rates=logs, factor=values[..., count:])
        result._fixed_extra = None
        result._fixed_extra = result.extra_damping()
        return result

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        mean = self.prior_log_rates[self.is_active]
        spread = torch.full_like(mean, 3.0)
        if self.latent_dim > 1:
            mean = torch.cat([mean, torch.zeros_like(self.factor.detach())])
            spread = torch.cat([spread, torch.ones_like(self.factor.detach()) * self.prior_factor])
        return mean, spread
