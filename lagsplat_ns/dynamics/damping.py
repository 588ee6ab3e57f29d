"""Damping: forces against the motion that take energy out at every speed."""

from __future__ import annotations

from typing import no_type_check

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.parts import lower_triangle, replaced
from lagsplat_ns.dynamics.structure import Structure

__all__ = ["RayleighDamping"]

_OFF_DIAGONAL = 0.3
"""prior of friction that acts on two joints at once, over that of friction in one"""
_LOG_SPREAD = 2.0
"""prior of the logarithm of the root of a joint's friction"""


class RayleighDamping(nn.Module):
    """C(q, q') = (c_0 + c_1 |q'|_M + c_2 / |q'|_M) M(q) + G, each coefficient >= 0, c_0 >= floor > 0.

    c_0 (1/s) is viscous damping in the metric of the motion, c_1 the drag of air at speed (quadratic), c_2 dry
    friction; |q'|_M = sqrt(q'^T M q' + slow_speed^2), so all of it is smooth; coordinates of different groups have
    speeds of their own. G = B^T R R^T B is friction in the joints: B q' are their rates, and the prior of R
    holds it to a diagonal. C is positive definite for every value of the parameters: energy always decays. Drag and
    friction are switched on only where the data ask for them.

    Free parameters: log of the coefficients that are switched on, then, if d > 1, the entries of R within a group,
    those on its diagonal as logarithms: at zero friction its root would have no slope to leave by.
    Law: tests/laws/test_dynamics.py, power balance.
    """

    log_rates: Tensor
    is_active: Tensor
    slow_speed: Tensor
    prior_log_rates: Tensor
    prior_factor: Tensor
    joint_rows: Tensor
    groups: Tensor

    def __init__(self, latent_dim: int, rate: float = 0.1, floor: float = 1e-3) -> None:
        super().__init__()
        self.latent_dim, self.floor = latent_dim, floor
        logs = torch.tensor([rate, 1e-2, 1e-2], dtype=torch.float64).log()
        self.log_rates = nn.Parameter(logs.clone())
        self.factor = nn.Parameter(torch.zeros(latent_dim * (latent_dim + 1) // 2, dtype=torch.float64))
        self.register_buffer("is_active", torch.tensor([True, False, False]))
        self.register_buffer("slow_speed", torch.ones((), dtype=torch.float64) * 1e-3)
        self.register_buffer("prior_log_rates", logs.clone())
        self.register_buffer("prior_factor", torch.ones(latent_dim, dtype=torch.float64))
        self.register_buffer("joint_rows", torch.eye(latent_dim, dtype=torch.float64))
        self.register_buffer("groups", torch.zeros(latent_dim, dtype=torch.long))
        self._same_group: Tensor | None = None
        self._fixed_extra: Tensor | None = None

    @no_type_check  # in the innermost loop
    def forward(self, qd: Float[Tensor, "*B d"], mass: Float[Tensor, "*B d d"]) -> Float[Tensor, "*B d d"]:
        """C from the rates and the mass matrix where the thing is."""
        rates = torch.exp(self.log_rates)
        total = rates[..., 0] + self.floor
        drag, dry = self.active_kinds
        if drag or dry:
            power = qd * (mass * qd[..., None, :]).sum(-1)
            speed = (power @ self.same_group.to(power.dtype) + self.slow_speed**2).sqrt()  # [*, d], equal in a group
            total = total[..., None]
            if drag:
                total = total + rates[..., 1:2] * speed
            if dry:
                total = total + rates[..., 2:3] / speed
            result = total[..., None] * mass
        else:
            result = total[..., None, None] * mass
        if self.latent_dim > 1:
            result = result + self.extra_damping()
        return result

    @no_type_check  # in the innermost loop
    def extra_damping(self) -> Float[Tensor, "*P d d"]:
        """G, beyond the metric of the motion."""
        if self._fixed_extra is not None:
            return self._fixed_extra
        root = self.joint_rows.T @ lower_triangle(self.factor, self.latent_dim)
        return root @ root.transpose(-1, -2)

    def belong_to(self, structure: Structure) -> None:
        """Friction acts in these joints, and nothing across groups."""
        self.joint_rows.copy_(structure.joint_rows)
        self.groups.copy_(structure.groups)
        self._same_group = self._fixed_extra = None
        with torch.no_grad():
            self.factor.mul_(self.free_factor)

    @property
    def same_group(self) -> Bool[Tensor, "d d"]:
        """Which coordinates move the same thing."""
        if self._same_group is None:
            self._same_group = self.groups[:, None] == self.groups
        return self._same_group

    @property
    def free_factor(self) -> Bool[Tensor, " r"]:
        """Which entries of R may be moved."""
        rows, columns = torch.tril_indices(self.latent_dim, self.latent_dim)
        return self.same_group[rows, columns]

    @property
    def active_kinds(self) -> tuple[bool, bool]:
        """Whether drag and dry friction are switched on."""
        return bool(self.is_active[1]), bool(self.is_active[2])

    def set_friction(self, friction: Float[Tensor, " d"]) -> None:
        """Friction of every joint by itself, positive."""
        rows, columns = torch.tril_indices(self.latent_dim, self.latent_dim)
        with torch.no_grad():
            self.factor.copy_(friction.clamp(min=1e-30).sqrt().diag()[rows, columns])
        self._fixed_extra = None

    # ---- free parameters
    @property
    def _on_diagonal(self) -> Tensor:
        rows, columns = torch.tril_indices(self.latent_dim, self.latent_dim)
        return (rows == columns)[self.free_factor]

    def parameter_vector(self) -> Float[Tensor, " n"]:
        chosen = self.log_rates.detach()[self.is_active]
        if self.latent_dim == 1:
            return chosen
        free = self.factor.detach()[self.free_factor]
        logs = free.abs().clamp(min=1e-15).log()
        return torch.cat([chosen, torch.where(self._on_diagonal, logs, free)])

    def with_vector(self, values: Float[Tensor, "*P n"]) -> RayleighDamping:
        count = int(self.is_active.sum())
        logs = self.log_rates.detach().expand(*values.shape[:-1], 3).clone()
        logs[..., self.is_active] = values[..., :count]
        if self.latent_dim == 1:
            return replaced(self, log_rates=logs)
        factor = self.factor.detach().expand(*values.shape[:-1], -1).clone()
        free = values[..., count:]
        factor[..., self.free_factor] = torch.where(self._on_diagonal, free.clamp(max=50.0).exp(), free)
        result = replaced(self, log_rates=logs, factor=factor)
        result._fixed_extra = None
        result._fixed_extra = result.extra_damping()
        return result

    def parameter_prior(self) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        mean = self.prior_log_rates[self.is_active]
        spread = torch.full_like(mean, 3.0)
        if self.latent_dim > 1:
            rows, _ = torch.tril_indices(self.latent_dim, self.latent_dim)
            size = self.prior_factor[rows][self.free_factor]
            center = torch.where(self._on_diagonal, (0.3 * size).log(), torch.zeros_like(size))
            mean = torch.cat([mean, center])
            spread = torch.cat([spread, torch.where(self._on_diagonal, _LOG_SPREAD, _OFF_DIAGONAL * size)])
        return mean, spread
