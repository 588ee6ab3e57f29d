"""What the geometry says about coordinates: which joints they turn, which of them belong together, which come round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["TILT", "HasGravity", "HasStructure", "Structure", "structure_of"]

TILT = 0.1
"""standard deviation of the sideways share of gravity: a camera is held nearly level"""


@dataclass(frozen=True)
class Structure:
    """Joints, groups and periods of d coordinates.

    joint_rows [d, d]: q' to the rates of joints, relative to what a part hangs on (for a thing that bends, a square
    root of the sum over its joints); groups [d]: coordinates of different groups move independent things; periods [d]:
    after how much of a coordinate the thing is where it was, infinite for one that does not turn.
    """

    joint_rows: Float[Tensor, "d d"]
    groups: Int[Tensor, " d"]
    periods: Float[Tensor, " d"]


@runtime_checkable
class HasStructure(Protocol):
    """A metric that knows the structure of its coordinates."""

    def structure(self) -> Structure: ...


@runtime_checkable
class HasGravity(Protocol):
    """A metric that knows where its mass is, and so the potential V_g(q) = -g . (first moment of mass) of gravity.

    `gravity` [2] is the acceleration in the plane (right, up), scene units / s^2; it acts where `has_gravity`, and
    cannot where the first moments were not given (`can_weigh`).
    """

    gravity: Tensor
    prior_gravity: Tensor

    @property
    def has_gravity(self) -> bool: ...

    @property
    def can_weigh(self) -> bool: ...

    def gravity_energy(self, q: Tensor) -> Tensor: ...

    def gravity_gradient(self, q: Tensor) -> Tensor: ...

    def gravity_columns(self, q: Tensor) -> Tensor: ...

    def admit(self, gravity: bool, densities: bool) -> None: ...


def structure_of(metric: object, latent_dim: int) -> Structure:
    """That of a metric which knows it; otherwise one group of coordinates that are joints and do not turn."""
    if isinstance(metric, HasStructure):
        return metric.structure()
    return Structure(
        torch.eye(latent_dim, dtype=torch.float64),
        torch.zeros(latent_dim, dtype=torch.long),
        torch.full((latent_dim,), math.inf, dtype=torch.float64),
    )
