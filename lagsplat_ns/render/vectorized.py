"""Rasterization in vectorized PyTorch: tiles in batches, float32, autograd. The contender of `lagsplat bench
--renderer`.

The best that we know to do without kernels of our own: every tile gets the Gaussians whose contour alpha = 1/255
reaches it (the same short lists as the CPU backend's), tiles with lists of similar length are padded to one length and
composited together. RGB, pinhole cameras, classic.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.render.reference import project

_TILE = 16
_MAX_ELEMENTS = 1_000_000  # of a batch's [tiles, Gaussians, pixels]: stays near the cache


def _tile_lists(projected: dict[str, Tensor], tiles_x: int, tiles_y: int) -> tuple[Tensor, Tensor]:
    """Gaussians [I] in order of tile and depth, and the number of them in each tile [T], for one image."""
    radii, means2d, depths = projected["radii"], projected["means2d"], projected["depths"]  # [N, 2], [N, 2], [N]
    A, B, D = projected["conics"].unbind(-1)
    opacities = projected["opacities"]
    reach = 2 * torch.log((255 * opacities).clamp(min=1)) / (A * D - B * B)  # [N]
    reach = torch.sqrt(reach[:, None] * torch.stack([D, A], -1)) + 0.01  # [N, 2] half sides of the contour's box
    limits = torch.tensor([tiles_x, tiles_y])
    first = torch.floor((means2d - torch.minimum(radii, reach)) / _TILE).clamp(min=0)
    last = torch.minimum(torch.ceil((means2d + torch.minimum(radii, reach)) / _TILE), limits)
    spans = (last - first).clamp(min=0).long()  # [N, 2] tiles
    counts = spans.prod(-1) * ((radii > 0).all(-1) & (opacities >= 1 / 255))  # [N]
    gaussians = torch.repeat_interleave(torch.arange(len(counts)), counts)  # [I]
    within = torch.arange(len(gaussians)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    x = first[gaussians, 0].long() + within % spans[gaussians, 0]
    y = first[gaussians, 1].long() + within // spans[gaussians, 0]
    tiles = y * tiles_x + x  # [I]
    order = torch.argsort(depths[gaussians], stable=True)
    order = order[torch.argsort(tiles[order], stable=True)]
    return gaussians[order], torch.bincount(tiles, minlength=tiles_x * tiles_y)


def _composite_tiles(
    packed: Tensor,  # [N, 9] center 2, conic 3, opacity, color 3
    members: Tensor,  # [B, K] Gaussians, padded
    is_member: Tensor,  # [B, K]
    corners: Tensor,  # [B, 2] pixels
) -> tuple[Tensor, Tensor]:
    """Colors [B, 256, 3] and alphas [B, 256] of a batch of tiles."""
    rows, columns = torch.meshgrid(torch.arange(_TILE), torch.arange(_TILE), indexing="ij")
    pixels = torch.stack([columns, rows], -1).reshape(-1, 2) + 0.5  # [256, 2]
    values = packed[members]  # [B, K, 9]
    dx, dy = (values[:, :, None, :2] - (corners[:, None] + pixels)[:, None]).unbind(-1)  # [B, K, 256]
    A, B, D = values[:, :, 2:5, None].unbind(2)  # [B, K, 1]
    sigma = 0.5 * (A * dx * dx + D * dy * dy) + B * dx * dy
    alpha = torch.clamp_max(values[:, :, 5:6] * torch.exp(-sigma), 0.999)
    alpha = alpha * ((alpha >= 1 / 255) & is_member[:, :, None])  # [B, K, 256]
    after = torch.cumprod(1 - alpha, 1)
    before = torch.cat([torch.ones_like(after[:, :1]), after[:, :-1]], 1)
    weights = alpha * before * (after > 1e-4)  # [B, K, 256]
    return torch.einsum("bkp,bkc->bpc", weights, values[:, :, 6:]), weights.sum(1)


def rasterize_vectorized(
    means: Float[Tensor, "N 3"],
    quats: Float[Tensor, "N 4"],
    scales: Float[Tensor, "N 3"],
    opacities: Float[Tensor, " N"],
    colors: Float[Tensor, "N 3"],
    viewmats: Float[Tensor, "C 4 4"],
    Ks: Float[Tensor, "C 3 3"],
    width: int,
    height: int,
) -> tuple[Float[Tensor, "C H W 3"], Float[Tensor, "C H W 1"]]:
    """Colors over black and alphas, as `rasterization` gives them with gsplat 1.4's radii and default arguments."""
    limits = (0.01, 1e10, 0.0, 0.3, False, False)
    sets = (means[None], quats[None], scales[None], opacities[None])
    projected = project(*sets, viewmats, Ks, width, height, *limits)
    tiles_x, tiles_y = -(-width // _TILE), -(-height // _TILE)
    images, alphas = [], []
    for c in range(len(viewmats)):
        one = {name: value[c] for name, value in projected.items()}
        with torch.no_grad():
            gaussians, counts = _tile_lists(one, tiles_x, tiles_y)
            starts = counts.cumsum(0) - counts  # [T]
            by_length = torch.argsort(counts, descending=True)
            lengths = counts[by_length].tolist()
        packed = torch.cat([one["means2d"], one["conics"], one["opacities"][:, None], colors], -1)  # [N, 9]
        image, alpha = means.new_zeros(len(counts), _TILE**2, 3), means.new_zeros(len(counts), _TILE**2)
        done = 0
        pieces, piece_alphas = [], []
        while done < len(lengths) and lengths[done] > 0:
            longest = lengths[done]
            size = max(1, _MAX_ELEMENTS // (longest * _TILE**2))
            while size > 1 and lengths[min(done + size, len(lengths)) - 1] < 0.8 * longest:  # little padding
                size //= 2
            tiles = by_length[done : done + size]  # [B]
            slots = torch.arange(longest)
            is_member = slots < counts[tiles, None]  # [B, K]
            members = gaussians[(starts[tiles, None] + slots).clamp(max=len(gaussians) - 1)]  # [B, K]
            corners = torch.stack([tiles % tiles_x, tiles // tiles_x], -1) * _TILE  # [B, 2]
            piece, piece_alpha = _composite_tiles(packed, members, is_member, corners)
            pieces.append(piece)
            piece_alphas.append(piece_alpha)
            done += size
        if pieces:
            drawn = by_length[: sum(map(len, pieces))]
            image = image.index_copy(0, drawn, torch.cat(pieces))
            alpha = alpha.index_copy(0, drawn, torch.cat(piece_alphas))
        grid = torch.cat([image, alpha[..., None]], -1).reshape(tiles_y, tiles_x, _TILE, _TILE, 4)
        grid = grid.permute(0, 2, 1, 3, 4).reshape(tiles_y * _TILE, tiles_x * _TILE, 4)[:height, :width]
        images.append(grid[..., :3])
        alphas.append(grid[..., 3:])
    return torch.stack(images), torch.stack(alphas)
