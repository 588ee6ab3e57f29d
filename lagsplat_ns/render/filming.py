"""The fixed camera that filmed a clip, and the picture plane it looks at.

The camera sits at (0, -D, 0), x right, z up, and looks along +y at the plane y = 0, in which the picture's larger side
spans two scene units: D = 2 f / max(W, H). Depth and scale of a clip from one fixed camera are unobservable; this
choice is the gauge.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class FilmingCamera:
    """A pinhole camera with the principal point in the middle. width, height and focal length in pixels."""

    width: int
    height: int
    focal: float

    @property
    def pixel_size(self) -> float:
        """Scene units per pixel in the picture plane."""
        return 2.0 / max(self.width, self.height)

    @property
    def distance(self) -> float:
        """Distance of the camera from the picture plane, scene units."""
        return self.focal * self.pixel_size

    def world_from_camera(self) -> Float[Tensor, "3 4"]:
        """nerfstudio's camera_to_world with OpenGL axes (the camera looks along its -z)."""
        return torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, -self.distance], [0.0, 1.0, 0.0, 0.0]])

    def viewmat(self) -> Float[Tensor, "4 4"]:
        """camera_from_world with OpenCV axes (x right, y down, z forward), as gsplat wants it."""
        return torch.tensor(
            [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, self.distance], [0.0, 0.0, 0.0, 1.0]]
        )

    def intrinsics(self) -> Float[Tensor, "3 3"]:
        return torch.tensor([[self.focal, 0.0, self.width / 2], [0.0, self.focal, self.height / 2], [0.0, 0.0, 1.0]])

    def plane_from_pixels(self, pixels: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B 2"]:
        """Plane coordinates (x, z) of pixel coordinates (u, v), origin top left, pixel centers at +0.5."""
        u, v = pixels.unbind(-1)
        return torch.stack([u - self.width / 2, self.height / 2 - v], dim=-1) * self.pixel_size

    def pixels_from_plane(self, plane: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B 2"]:
        """The inverse of `plane_from_pixels`."""
        x, z = (plane / self.pixel_size).unbind(-1)
        return torch.stack([x + self.width / 2, self.height / 2 - z], dim=-1)
