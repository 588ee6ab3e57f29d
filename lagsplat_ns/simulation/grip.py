"""What a click holds: the visible moving Gaussians of one pixel, and the generalized force of pulling on them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.simulation.camera import PinholeCamera
from lagsplat_ns.types import Gaussians

# A pixel of which moving things cover less than this share shows the background: a grip there is empty.
MIN_COVERAGE = 0.35


@dataclass(frozen=True)
class Grip:
    """The visible moving Gaussians of one pixel, held with fixed weights while the thing moves.

    indices [K] into the scene's Gaussians; weights [K] their shares in the pixel, summing to one, or nothing at all on
    the background; coverage: the part of the pixel that shows moving things, in [0, 1].
    """

    pixel: tuple[float, float]
    camera: PinholeCamera
    indices: Int[Tensor, " K"]
    weights: Float[Tensor, " K"]
    coverage: float

    @property
    def is_empty(self) -> bool:
        """Whether the pixel showed only background."""
        return self.indices.numel() == 0


def pixel_shares(gaussians: Gaussians, camera: PinholeCamera, pixel: tuple[float, float]) -> Float[Tensor, " N"]:
    """The share w_i = opacity x transmittance of every Gaussian in one pixel.

    The rendered color is sum_i w_i c_i, so w_i is exactly the derivative of the pixel with respect to color i.

    Raises: ValueError for a pixel outside the picture.
    """
    x, y = pixel
    if not (0.0 <= x < camera.width and 0.0 <= y < camera.height):
        raise ValueError(
            f"`pixel` must lie inside the picture, 0 <= x < {camera.width} and 0 <= y < {camera.height}, "
            f"but is ({x}, {y}).\n  Count pixels from the top left corner of the camera's picture."
        )
    with torch.enable_grad():
        shade = torch.ones_like(gaussians.means[:, :1]).requires_grad_(True)
        image = rasterize(gaussians, camera, colors=shade)
        (shares,) = torch.autograd.grad(image[int(y), int(x), 0], shade)
    return shares[:, 0]


def rasterize(
    gaussians: Gaussians,
    camera: PinholeCamera,
    *,
    colors: Float[Tensor, "N channels"] | None = None,
    background: Float[Tensor, " channels"] | None = None,
) -> Float[Tensor, "H W channels"]:
    """The picture of posed Gaussians from one camera."""
    means = gaussians.means
    picture, _, _ = rasterization(
        means=means,
        quats=gaussians.quats_wxyz,
        scales=gaussians.log_scales.exp(),
        opacities=gaussians.opacity_logits.sigmoid(),
        colors=gaussians.colors if colors is None else colors,
        viewmats=camera.camera_from_world.to(means)[None],
        Ks=camera.intrinsics.to(means)[None],
        width=camera.width,
        height=camera.height,
        backgrounds=None if background is None else background.to(means)[None],
    )
    return picture[0]


def grip_from_shares(
    shares: Float[Tensor, " N"], is_moving: Tensor, camera: PinholeCamera, pixel: tuple[float, float]
) -> Grip:
    """A grip on the moving Gaussians among those that share a pixel.

    The shares of the moving ones are scaled to sum to one, so that a pull on a thin or soft thing is as strong as one
    on a solid thing; below `MIN_COVERAGE` the grip is empty.

    Source: LaGSplat (arXiv 2608.16324), click forces over visible moving primitives.
    """
    moving = torch.where(is_moving, shares, torch.zeros_like(shares)).double().cpu()
    coverage = float(moving.sum())
    indices = torch.nonzero(moving > 1e-3 * moving.max())[:, 0]
    if coverage < MIN_COVERAGE:
        indices = indices[:0]
    weights = moving[indices]
    return Grip(pixel, camera, indices, weights / weights.sum() if len(indices) else weights, coverage)


def picture_jacobian(
    grip: Grip, points: Float[Tensor, "K 3"], jacobians: Float[Tensor, "K 3 d"]
) -> Float[Tensor, "2 d"]:
    """B = sum_i w_i P_i J_i: how the held spot moves in the picture (x right, y down, picture units) as q moves.

    Pulling with f gives the generalized force B^T f, so that f . (B qd) = (B^T f) . qd: the work done in the picture
    is the work done on the coordinates. A picture unit is half the larger side of the picture, whatever its resolution.

    Law: tests/test_simulator_laws.py, work identity.
    """
    projection = grip.camera.projection_jacobian(points) / grip.camera.pixels_per_unit
    return torch.einsum("k,kab,kbd->ad", grip.weights.to(points), projection, jacobians)
