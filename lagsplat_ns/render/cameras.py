"""Cameras: the one place where nerfstudio's axes become gsplat's axes.

nerfstudio (OpenGL): x right, y up, the camera looks along -z; matrices world_from_camera.
gsplat (OpenCV): x right, y down, the camera looks along +z; matrices camera_from_world.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def viewmats_from_nerfstudio(camera_to_worlds: Float[Tensor, "C rows 4"]) -> Float[Tensor, "C 4 4"]:
    """camera_from_world matrices, with gsplat's axes, of nerfstudio's `camera_to_worlds` [C, 3, 4] (or [C, 4, 4])."""
    rotations = camera_to_worlds[:, :3, :3] * camera_to_worlds.new_tensor([1.0, -1.0, -1.0])  # [C, 3, 3] flips y and z
    camera_from_world = rotations.transpose(1, 2)  # [C, 3, 3]
    translations = -camera_from_world @ camera_to_worlds[:, :3, 3:]  # [C, 3, 1]
    last_rows = camera_to_worlds.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(rotations.shape[0], 1, 4)
    return torch.cat([torch.cat([camera_from_world, translations], -1), last_rows], 1)  # [C, 4, 4]


def intrinsics_matrices(
    fx: Float[Tensor, " C"], fy: Float[Tensor, " C"], cx: Float[Tensor, " C"], cy: Float[Tensor, " C"]
) -> Float[Tensor, "C 3 3"]:
    """Intrinsics K of pinhole cameras, in pixels from the top left corner of the image."""
    zero, one = torch.zeros_like(fx), torch.ones_like(fx)
    rows = [torch.stack(row, -1) for row in ((fx, zero, cx), (zero, fy, cy), (zero, zero, one))]
    return torch.stack(rows, -2)
