"""A pinhole camera: where it stands, what it sees, and how a moving point moves in its picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.render.cameras import viewmats_from_nerfstudio


@dataclass(frozen=True)
class PinholeCamera:
    """A pinhole camera in nerfstudio's axes (OpenGL: x right, y up, looking along -z; world z up).

    world_from_camera [4, 4] in scene units; focal lengths and principal point in pixels, pixel centers at +0.5, origin
    top left.
    """

    world_from_camera: Float[Tensor, "4 4"]
    fx: float
    fy: float
    cx: float
    cy: float
    width: int
    height: int

    @classmethod
    def from_angle(cls, world_from_camera: Tensor, camera_angle_x: float, width: int, height: int) -> PinholeCamera:
        """A camera with square pixels and centered principal point; `camera_angle_x` is the horizontal field of view
        in radians.

        Raises: ValueError for a matrix that is not [3, 4] or [4, 4], an angle outside (0, pi), an empty picture.
        """
        matrix = torch.as_tensor(world_from_camera).detach().cpu().double()
        if tuple(matrix.shape) not in ((3, 4), (4, 4)) or not torch.isfinite(matrix).all():
            raise ValueError(
                "`world_from_camera` must be a finite [3, 4] or [4, 4] matrix (OpenGL axes), "
                f"but came with shape {list(matrix.shape)}.\n"
                "  Pass the camera-to-world matrix as nerfstudio writes it in camera paths."
            )
        if not 0.0 < camera_angle_x < math.pi:
            raise ValueError(
                f"`camera_angle_x` must lie between 0 and pi radians, but is {camera_angle_x}.\n"
                "  Pass the horizontal field of view in radians, for example 0.8 for 46 degrees."
            )
        if width < 1 or height < 1:
            raise ValueError(
                f"`width` and `height` must be at least 1 pixel, but are {width} and {height}.\n"
                "  Pass the size of the picture in pixels."
            )
        if matrix.shape[0] == 3:
            matrix = torch.cat([matrix, matrix.new_tensor([[0.0, 0.0, 0.0, 1.0]])])
        focal = 0.5 * width / math.tan(0.5 * camera_angle_x)
        return cls(matrix, focal, focal, 0.5 * width, 0.5 * height, width, height)

    @property
    def camera_angle_x(self) -> float:
        """The horizontal field of view in radians."""
        return 2.0 * math.atan(0.5 * self.width / self.fx)

    @property
    def vertical_fov_degrees(self) -> float:
        """The vertical field of view in degrees, as nerfstudio's camera paths store it."""
        return math.degrees(2.0 * math.atan(0.5 * self.height / self.fy))

    @property
    def pixels_per_unit(self) -> float:
        """Pixels per picture unit: the larger side of a picture is two units long, whatever its resolution."""
        return 0.5 * max(self.width, self.height)

    @cached_property
    def camera_from_world(self) -> Float[Tensor, "4 4"]:
        """The rigid transform from the world to the camera's picture axes (x right, y down, z forward)."""
        return viewmats_from_nerfstudio(self.world_from_camera[None, :3, :])[0]

    @property
    def intrinsics(self) -> Float[Tensor, "3 3"]:
        """The matrix from picture axes to pixels."""
        rows = [[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]]
        return torch.tensor(rows, dtype=self.world_from_camera.dtype)

    def resized(self, width: int, height: int) -> PinholeCamera:
        """The same view in a picture of another size."""
        sx, sy = width / self.width, height / self.height
        return replace(
            self,
            fx=self.fx * sx,
            fy=self.fy * sy,
            cx=self.cx * sx,
            cy=self.cy * sy,
            width=width,
            height=height,
        )

    def project(self, points: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 2"]:
        """Pixels at which points of the world appear."""
        x, y, z = self._in_picture_axes(points).unbind(-1)
        return torch.stack([self.fx * x / z + self.cx, self.fy * y / z + self.cy], -1)

    def projection_jacobian(self, points: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 2 3"]:
        """P = d pixel / d point: how fast a pixel moves when the point moves, in pixels per scene unit."""
        x, y, z = self._in_picture_axes(points).unbind(-1)
        zero = torch.zeros_like(z)
        in_picture_axes = torch.stack(
            [
                torch.stack([self.fx / z, zero, -self.fx * x / z**2], -1),
                torch.stack([zero, self.fy / z, -self.fy * y / z**2], -1),
            ],
            -2,
        )
        return in_picture_axes @ self.camera_from_world[:3, :3].to(points)

    def unproject(
        self, pixels: Float[Tensor, "*batch 2"], depths: Float[Tensor, " *batch"]
    ) -> Float[Tensor, "*batch 3"]:
        """Points of the world seen at pixels, at given depths along the viewing axis."""
        u, v = pixels.unbind(-1)
        in_picture_axes = torch.stack([(u - self.cx) / self.fx * depths, (v - self.cy) / self.fy * depths, depths], -1)
        matrix = self.camera_from_world.to(pixels)
        return (in_picture_axes - matrix[:3, 3]) @ matrix[:3, :3]

    def _in_picture_axes(self, points: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
        matrix = self.camera_from_world.to(points)
        return points @ matrix[:3, :3].T + matrix[:3, 3]
