"""Pictures of the moving primitives over a fixed picture of the background, many time steps in one call."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.render.rasterize import rasterization


def render_over(
    scene: LatentScene,
    camera: FilmingCamera,
    background: Float[Tensor, "H W 3"],
    poses: tuple[Tensor, Tensor, Tensor],
) -> Float[Tensor, "F H W 3"]:
    """Moving primitives with poses (means [F, M, 3], quats [F, M, 4], opacities [F, M]) over a background picture.

    The static primitives lie behind all moving ones, so this is the picture of the whole scene at a fraction of the
    cost (up to the cut-off of nearly opaque pixels, T <= 1e-4).
    """
    means, quats, opacities = poses
    num_frames, moving = means.shape[0], scene.num_moving
    device = means.device
    pictures, alphas, _ = rasterization(
        means=means,
        quats=quats,
        scales=torch.exp(scene.gauss_params["scales"][:moving]),
        opacities=opacities,
        colors=scene.colors[:moving],
        viewmats=camera.viewmat().to(device).expand(num_frames, 4, 4),
        Ks=camera.intrinsics().to(device).expand(num_frames, 3, 3),
        width=camera.width,
        height=camera.height,
    )
    return pictures + (1.0 - alphas) * background


def render_static(scene: LatentScene, camera: FilmingCamera) -> Float[Tensor, "H W 3"]:
    """Picture of the static primitives alone, black where there are none."""
    params, moving, device = scene.gauss_params, scene.num_moving, scene.gauss_params["means"].device
    pictures, _, _ = rasterization(
        means=params["means"][moving:],
        quats=params["quats"][moving:],
        scales=torch.exp(params["scales"][moving:]),
        opacities=torch.sigmoid(params["opacities"][moving:, 0]),
        colors=scene.colors[moving:],
        viewmats=camera.viewmat().to(device)[None],
        Ks=camera.intrinsics().to(device)[None],
        width=camera.width,
        height=camera.height,
    )
    return pictures[0]


@torch.no_grad()
def render_scene(scene: LatentScene, camera: FilmingCamera, q: Float[Tensor, "F d"]) -> Float[Tensor, "F H W 3"]:
    """Pictures of the whole scene, static and moving primitives in one pass, black where there are none."""
    num_frames, moving = q.shape[0], scene.num_moving
    opacities = torch.sigmoid(scene.gauss_params["opacities"][moving:, 0]).expand(num_frames, -1)
    device = q.device
    pictures, _, _ = rasterization(
        means=scene.means(q),
        quats=scene.quats(q),
        scales=torch.exp(scene.gauss_params["scales"]),
        opacities=torch.cat([scene.moving(q)[2], opacities], dim=-1),
        colors=scene.colors,
        viewmats=camera.viewmat().to(device).expand(num_frames, 4, 4),
        Ks=camera.intrinsics().to(device).expand(num_frames, 3, 3),
        width=camera.width,
        height=camera.height,
    )
    return pictures
