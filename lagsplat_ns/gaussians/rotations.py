"""Quaternions (w, x, y, z) and rotations of the picture plane."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def quaternion_product(a: Float[Tensor, "*B 4"], b: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 4"]:
    """The Hamilton product a b: the rotation b first, then a."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        dim=-1,
    )


def plane_rotation_quaternion(angle: Float[Tensor, "*B"]) -> Float[Tensor, "*B 4"]:
    """The rotation by `angle` (radians, from +x toward +z) in the picture plane y = 0, as a quaternion."""
    half, zero = angle / 2, torch.zeros_like(angle)
    return torch.stack([torch.cos(half), zero, -torch.sin(half), zero], dim=-1)
