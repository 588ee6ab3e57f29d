"""What `rasterization` means, written plainly: float64, autograd, every Gaussian against every pixel. For tests.

Gaussian sets are [S, N, ...] with S = 1 or C; P is the number of pixels H W.
Source: gsplat 1.4.0 and 1.5.3, `fully_fused_projection_fwd.cu`, `rasterize_to_pixels_fwd.cu`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lagsplat_ns.render.spherical_harmonics import colors_of_harmonics

_TILE = 16
_NEAR = 3e-4  # relative distance from a threshold that float32 may overcome


def rotation_matrices(quats: Tensor) -> Tensor:
    """[*, 3, 3] of quaternions wxyz [*, 4] of any length."""
    w, x, y, z = F.normalize(quats, dim=-1).unbind(-1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def project(
    means: Tensor,  # [S, N, 3]
    quats: Tensor,  # [S, N, 4]
    scales: Tensor,  # [S, N, 3]
    opacities: Tensor,  # [S, N]
    viewmats: Tensor,  # [C, 4, 4]
    Ks: Tensor,  # [C, 3, 3]
    width: int,
    height: int,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    eps2d: float,
    antialiased: bool,
    opacity_aware: bool,
) -> dict[str, Tensor]:
    """radii [C, N, 2] (0: culled), means2d [C, N, 2], depths [C, N], conics [C, N, 3], opacities [C, N]."""
    M = rotation_matrices(quats) * scales[..., None, :]  # [S, N, 3, 3]
    covariances = M @ M.transpose(-1, -2)  # [S, N, 3, 3]
    rotations, translations = viewmats[:, :3, :3], viewmats[:, :3, 3]
    in_camera = torch.einsum("cij,cnj->cni", rotations, means.expand(len(viewmats), -1, -1)) + translations[:, None]
    x, y, z = in_camera.unbind(-1)  # [C, N]
    covariances = rotations[:, None] @ covariances @ rotations[:, None].transpose(-1, -2)  # [C, N, 3, 3]
    visible = (z >= near_plane) & (z <= far_plane)
    z = torch.where(visible, z, torch.ones_like(z))
    fx, fy, cx, cy = (Ks[:, i, j, None] for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))  # [C, 1]
    margin_x, margin_y = 0.15 * width / fx, 0.15 * height / fy
    x_in = z * torch.minimum(torch.maximum(x / z, -(cx / fx + margin_x)), (width - cx) / fx + margin_x)
    y_in = z * torch.minimum(torch.maximum(y / z, -(cy / fy + margin_y)), (height - cy) / fy + margin_y)
    zero = torch.zeros_like(z)
    J = torch.stack([fx / z, zero, -fx * x_in / z**2, zero, fy / z, -fy * y_in / z**2], -1)
    J = J.unflatten(-1, (2, 3))  # [C, N, 2, 3]
    covariances2d = J @ covariances @ J.transpose(-1, -2)  # [C, N, 2, 2]
    a0, b, d0 = covariances2d[..., 0, 0], covariances2d[..., 0, 1], covariances2d[..., 1, 1]
    a, d = a0 + eps2d, d0 + eps2d
    det = a * d - b * b
    opacities = opacities.expand_as(z)
    if antialiased:
        opacities = opacities * torch.sqrt(torch.clamp((a0 * d0 - b * b) / det, min=0))
    means2d = torch.stack([fx * x / z + cx, fy * y / z + cy], -1)  # [C, N, 2]
    with torch.no_grad():
        visible = visible & (det > 0)
        if opacity_aware:
            visible = visible & (opacities >= 1 / 255)
            sigmas = torch.sqrt(2 * torch.log((255 * opacities).clamp(min=1))).clamp(max=3.33)
            radii = torch.ceil(sigmas[..., None] * torch.stack([a, d], -1).sqrt())
        else:
            middle = 0.5 * (a + d)
            largest = middle + torch.sqrt(torch.clamp(middle**2 - det, min=0.01))
            radii = torch.ceil(3 * largest.sqrt())[..., None].expand(-1, -1, 2)
        size = torch.tensor([width, height])
        visible = visible & ((radii > radius_clip).any(-1))
        visible = visible & (((means2d + radii > 0) & (means2d - radii < size)).all(-1))
        radii = radii * visible[..., None]
    conics = torch.stack([d, -b, a], -1) / det[..., None]
    return {"radii": radii, "means2d": means2d, "depths": in_camera[..., 2], "conics": conics, "opacities": opacities}


def composite(
    projected: dict[str, Tensor], colors: Tensor, width: int, height: int, opacity_aware: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Colors [C, H, W, X] over black, alphas [C, H, W, 1], and pixels [C, H, W] that round-off may take over a
    threshold.

    colors in [C, N, X].
    """
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    pixels = torch.stack([columns, rows], -1).reshape(-1, 2) + 0.5  # [P, 2]
    images, alphas, ambiguous = [], [], []
    for c in range(len(colors)):
        listed = torch.nonzero(projected["radii"][c].amin(-1) > 0)[:, 0]
        depths = projected["depths"][c, listed].detach().float()  # gsplat sorts float32; equal depths by index
        listed = listed[torch.argsort(depths, stable=True)]  # [L], front to back
        radii, means2d = projected["radii"][c, listed], projected["means2d"][c, listed]  # [L, 2]
        dx, dy = (means2d[:, None] - pixels).unbind(-1)  # [L, P]
        A, B, D = projected["conics"][c, listed, :, None].unbind(1)  # [L, 1]
        sigma = 0.5 * (A * dx**2 + D * dy**2) + B * dx * dy  # [L, P]
        alpha = torch.clamp_max(projected["opacities"][c, listed, None] * torch.exp(-sigma), 0.999)
        drawn = (sigma >= 0) & (alpha >= 1 / 255)
        if not opacity_aware:  # the square of three sigma, in whole tiles, cuts what would still be visible
            first = torch.floor((means2d.detach() - radii) / _TILE)[:, None] * _TILE  # [L, 1, 2]
            last = torch.ceil((means2d.detach() + radii) / _TILE)[:, None] * _TILE
            drawn &= ((pixels >= first) & (pixels < last)).all(-1)
        near_skip = (alpha * 255 - 1).abs() < _NEAR
        alpha = torch.where(drawn, alpha, torch.zeros_like(alpha))
        after = torch.cumprod(1 - alpha, 0)  # [L, P]
        before = torch.cat([torch.ones_like(after[:1]), after[:-1]]) if len(after) else after
        weights = torch.where(after > 1e-4, alpha * before, torch.zeros_like(alpha))  # nothing from the stop on
        near_stop = (after * 1e4 - 1).abs() < _NEAR
        ambiguous.append((near_skip | near_stop).any(0).reshape(height, width))
        images.append((weights.T @ colors[c, listed]).reshape(height, width, -1))
        alphas.append(weights.sum(0).reshape(height, width, 1))
    return torch.stack(images), torch.stack(alphas), torch.stack(ambiguous)


def rasterization(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    backgrounds: Tensor | None = None,
    render_mode: str = "RGB",
    rasterize_mode: str = "classic",
    opacity_aware: bool = False,
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The arguments and results of `lagsplat_ns.render.rasterize.rasterization`; opacity_aware: gsplat 1.5's radii."""
    C = len(viewmats)
    if sh_degree is not None:
        colors = colors_of_harmonics(sh_degree, means, colors, viewmats)  # [1 or C, N, 3]
    projected = project(
        means if means.dim() == 3 else means[None],
        quats if quats.dim() == 3 else quats[None],
        scales if scales.dim() == 3 else scales[None],
        opacities if opacities.dim() == 2 else opacities[None],
        viewmats,
        Ks,
        width,
        height,
        near_plane,
        far_plane,
        radius_clip,
        eps2d,
        rasterize_mode == "antialiased",
        opacity_aware,
    )
    colors = (colors if colors.dim() == 3 else colors[None]).expand(C, -1, -1)  # [C, N, D]
    depths = projected["depths"][..., None]  # [C, N, 1]
    if render_mode in ("D", "ED"):
        colors, backgrounds = depths, None
    elif render_mode in ("RGB+D", "RGB+ED"):
        colors = torch.cat([colors, depths], -1)
        backgrounds = None if backgrounds is None else F.pad(backgrounds, (0, 1))
    images, alphas, ambiguous = composite(projected, colors, width, height, opacity_aware)
    if backgrounds is not None:
        images = images + (1 - alphas) * backgrounds[:, None, None]
    if render_mode in ("ED", "RGB+ED"):
        images = torch.cat([images[..., :-1], images[..., -1:] / alphas.clamp(min=1e-10)], -1)
    return images, alphas, projected | {"ambiguous": ambiguous}
