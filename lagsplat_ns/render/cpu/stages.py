"""The stages of rendering as functions of NumPy arrays: memory, tickets and the order of kernels.

Shapes as in `projection` and `binning`: S sets, C cameras, N Gaussians, X channels, I intersections, T tiles in an
image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lagsplat_ns.compiling import pool
from lagsplat_ns.render.cpu.backward import composite_backward, sum_gradients
from lagsplat_ns.render.cpu.binning import count_and_sort, fill_tiles, pack_colors, pack_records
from lagsplat_ns.render.cpu.compile import prepare_once
from lagsplat_ns.render.cpu.forward import composite_forward
from lagsplat_ns.render.cpu.lanes import BLOCK, CHANNELS, GRAD_COLUMNS, TILE
from lagsplat_ns.render.cpu.projection import project_backward, project_forward

_MAX_INTERSECTIONS = 2**31 - 1


@dataclass(frozen=True)
class Camera:
    """Image size and the limits of projection, as in `rasterization`."""

    width: int
    height: int
    eps2d: float = 0.3
    near_plane: float = 0.01
    far_plane: float = 1e10
    radius_clip: float = 0.0
    antialiased: bool = False
    opacity_aware: bool = False

    @property
    def tiles_x(self) -> int:
        return -(-self.width // TILE)

    @property
    def tiles_y(self) -> int:
        return -(-self.height // TILE)

    def limits(self) -> np.ndarray:
        """[6] float32, in the kernels' order."""
        values = (self.width, self.height, self.eps2d, self.near_plane, self.far_plane, self.radius_clip)
        return np.array(values, np.float32)


@dataclass(frozen=True)
class Projected:
    """Gaussians in images; zeros where radii are zero."""

    radii: np.ndarray  # [C, N, 2] int32
    means2d: np.ndarray  # [C, N, 2]
    depths: np.ndarray  # [C, N]
    conics: np.ndarray  # [C, N, 3]
    compensations: np.ndarray  # [C, N]
    opacities: np.ndarray  # [C, N]


@dataclass(frozen=True)
class Tiles:
    """Lists of Gaussians per tile, front to back."""

    records: np.ndarray  # [C N, 16]
    tiles_per_gauss: np.ndarray  # [C, N] int32
    first_slots: np.ndarray  # [C, N] int32
    offsets: np.ndarray  # [C T + 1] int32
    gaussian_ids: np.ndarray  # [I] int32
    slots: np.ndarray  # [I] int32
    isect_ids: np.ndarray  # [I] int64


@dataclass(frozen=True)
class Image:
    """Composited pixels and what the backward pass needs of them."""

    colors: np.ndarray  # [C, H, W, X]
    alphas: np.ndarray  # [C, H, W, 1]
    transmittances: np.ndarray  # [C, H, W]
    last_ids: np.ndarray  # [C, H, W] int32


def _blocks(num_gaussians: int) -> int:
    return -(-num_gaussians // BLOCK)


def project(
    means: np.ndarray,  # [S, N, 3]
    quats: np.ndarray,  # [S, N, 4]
    scales: np.ndarray,  # [S, N, 3]
    opacities: np.ndarray,  # [S, N]
    viewmats: np.ndarray,  # [C, 4, 4]
    Ks: np.ndarray,  # [C, 3, 3]
    camera: Camera,
) -> Projected:
    """Gaussians in every image."""
    C, N = viewmats.shape[0], means.shape[1]
    out = Projected(
        radii=np.empty((C, N, 2), np.int32),
        means2d=np.empty((C, N, 2), np.float32),
        depths=np.empty((C, N), np.float32),
        conics=np.empty((C, N, 3), np.float32),
        compensations=np.empty((C, N), np.float32),
        opacities=np.empty((C, N), np.float32),
    )
    pool.run(
        project_forward,
        C * _blocks(N),
        *(means, quats, scales, opacities, viewmats, Ks, camera.limits(), camera.antialiased, camera.opacity_aware),
        *(out.radii, out.means2d, out.depths, out.conics, out.compensations, out.opacities),
    )
    return out


def project_vjp(
    inputs: tuple[np.ndarray, ...],  # means, quats, scales, opacities, viewmats, Ks
    camera: Camera,
    projected: Projected,
    v_means2d: np.ndarray,  # [C, N, 2]
    v_depths: np.ndarray,  # [C, N]
    v_conics: np.ndarray,  # [C, N, 3]
    v_opacities: np.ndarray,  # [C, N]
    with_view: bool,
) -> tuple[np.ndarray, ...]:
    """Gradients in means, quats, scales, opacities and viewmats (zeros unless `with_view`)."""
    means, quats, scales, opacities, viewmats, _ = inputs
    C, N = projected.depths.shape
    grads = tuple(np.zeros_like(array) for array in (means, quats, scales, opacities))
    v_view_blocks = np.zeros((_blocks(N) if with_view else 0, C, 12), np.float64)
    pool.run(
        project_backward,
        _blocks(N),
        *(*inputs, camera.limits(), camera.antialiased, with_view),
        *(projected.radii, projected.conics, projected.compensations),
        *(v_means2d, v_depths, v_conics, v_opacities, *grads, v_view_blocks),
    )
    v_viewmats = np.zeros_like(viewmats)
    if with_view:
        v_viewmats[:, :3] = v_view_blocks.sum(0).reshape(C, 3, 4)
    return (*grads, v_viewmats)


def bin_tiles(projected: Projected, colors: np.ndarray, camera: Camera) -> Tiles:
    """Tile lists of projected Gaussians; colors [1 or C, N, D] for the first four channels of the records."""
    C, N = projected.depths.shape
    tiles_x, tiles_y = camera.tiles_x, camera.tiles_y
    records = np.empty((C * N, 16), np.float32)
    tiles_per_gauss = np.empty((C, N), np.int32)
    pool.run(
        pack_records,
        C * _blocks(N),
        *(projected.means2d, projected.conics, projected.opacities, projected.radii, colors, projected.depths),
        *(tiles_x, tiles_y, records, tiles_per_gauss),
    )
    tile_counts = np.empty((C, tiles_x * tiles_y), np.int32)
    order, spare = np.empty((C, N), np.int32), np.empty((C, N), np.int32)
    num_listed = np.empty(C, np.int64)
    depth_bits = projected.depths.view(np.uint32)
    pool.run(
        count_and_sort,
        C,
        *(records, tiles_per_gauss, depth_bits, tiles_x, tile_counts, order, num_listed, spare),
    )
    ends = np.cumsum(tile_counts, dtype=np.int64)
    num_intersections = int(ends[-1])
    if num_intersections > _MAX_INTERSECTIONS:
        raise ValueError(
            f"One call may hold {_MAX_INTERSECTIONS} pairs of Gaussian and tile, but holds {num_intersections}.\n"
            f"  Render fewer cameras per call, or smaller Gaussians."
        )
    offsets = np.zeros(C * tiles_x * tiles_y + 1, np.int32)
    offsets[1:] = ends
    slot_ends = np.cumsum(tiles_per_gauss, dtype=np.int32).reshape(C, N)
    first_slots = slot_ends - tiles_per_gauss
    gaussian_ids = np.empty(num_intersections, np.int32)
    slots = np.empty(num_intersections, np.int32)
    isect_ids = np.empty(num_intersections, np.int64)
    next_in_tile = offsets[:-1].reshape(C, -1).copy()
    pool.run(
        fill_tiles,
        C,
        *(records, tiles_per_gauss, first_slots, depth_bits, tiles_x, order, num_listed, next_in_tile),
        *(gaussian_ids, slots, isect_ids),
    )
    return Tiles(records, tiles_per_gauss, first_slots, offsets, gaussian_ids, slots, isect_ids)


def _repack(tiles: Tiles, colors: np.ndarray, depths: np.ndarray, first_channel: int) -> None:
    C, N = depths.shape
    pool.run(pack_colors, C * _blocks(N), colors, depths, first_channel, tiles.tiles_per_gauss, tiles.records)


def composite(
    tiles: Tiles,
    colors: np.ndarray,  # [1 or C, N, D]
    depths: np.ndarray,  # [C, N]
    backgrounds: np.ndarray,  # [C, B], B = 0 without
    camera: Camera,
    num_channels: int,  # D, or D + 1 with the depth as the last channel
    expected_last: bool,
) -> Image:
    """Images of tile lists whose records hold the first four channels."""
    C = depths.shape[0]
    H, W = camera.height, camera.width
    image = Image(
        colors=np.empty((C, H, W, num_channels), np.float32),
        alphas=np.empty((C, H, W, 1), np.float32),
        transmittances=np.empty((C, H, W), np.float32),
        last_ids=np.empty((C, H, W), np.int32),
    )
    shape = (C, H, W, camera.tiles_y, camera.tiles_x)
    for first_channel in range(0, num_channels, CHANNELS):
        if first_channel > 0:
            _repack(tiles, colors, depths, first_channel)
        pool.run(
            composite_forward,
            C * camera.tiles_y * camera.tiles_x,
            *(tiles.records, tiles.offsets, tiles.gaussian_ids, shape, first_channel, backgrounds, expected_last),
            *(image.colors, image.alphas, image.transmittances, image.last_ids),
        )
    return image


def composite_vjp(
    tiles: Tiles,
    colors: np.ndarray,  # [1 or C, N, D]
    depths: np.ndarray,  # [C, N]
    opacities: np.ndarray,  # [C, N]
    camera: Camera,
    image: Image,
    expected_last: bool,
    v_colors: np.ndarray,  # [C, H, W, X]
    v_alphas: np.ndarray,  # [C, H, W, 1]
    with_absolute: bool,
) -> tuple[np.ndarray, ...]:
    """Gradients in means2d, conics, colors, opacities, depths; |v_means2d| summed over pixels ([0, N, 2] without)."""
    C, N = depths.shape
    num_channels = image.colors.shape[3]
    shape = (C, camera.height, camera.width, camera.tiles_y, camera.tiles_x)
    v_means2d, v_conics = np.zeros((C, N, 2), np.float32), np.zeros((C, N, 3), np.float32)
    v_colors_in, v_opacities = np.zeros_like(colors), np.zeros_like(opacities)
    v_depths = np.zeros((C if num_channels > colors.shape[2] else 0, N), np.float32)
    v_absolute = np.zeros((C if with_absolute else 0, N, 2), np.float32)
    gradients = np.empty((tiles.gaussian_ids.shape[0], GRAD_COLUMNS), np.float32)
    # Backwards, so that the first four channels are in the records again afterwards
    for first_channel in reversed(range(0, num_channels, CHANNELS)):
        if num_channels > CHANNELS:
            _repack(tiles, colors, depths, first_channel)
        pool.run(
            composite_backward,
            C * camera.tiles_y * camera.tiles_x,
            *(tiles.records, tiles.offsets, tiles.gaussian_ids, tiles.slots, shape, first_channel, expected_last),
            *(with_absolute, image.colors, image.transmittances, image.last_ids, v_colors, v_alphas, gradients),
        )
        pool.run(
            sum_gradients,
            _blocks(N),
            *(gradients, tiles.tiles_per_gauss, tiles.first_slots, opacities, first_channel),
            *(v_means2d, v_conics, v_opacities, v_absolute, v_colors_in, v_depths),
        )
    return v_means2d, v_conics, v_colors_in, v_opacities, v_depths, v_absolute


def prepare() -> None:
    """Compiles all kernels, or loads them from the cache, in the first call of a process."""
    prepare_once(_render_tiny)


def _render_tiny() -> None:
    """Two Gaussians in five channels, forward and backward: every kernel once."""
    pool.wait_until_changed(np.zeros(1, np.int64), 0, 1)
    camera = Camera(width=2, height=2)
    means = np.array([[[0, 0, 2], [0.1, 0, 3]]], np.float32)
    quats = np.tile(np.array([1, 0, 0, 0], np.float32), (1, 2, 1))
    opacities = np.full((1, 2), 0.5, np.float32)
    viewmats, Ks = np.eye(4, dtype=np.float32)[None], np.array([[[2, 0, 1], [0, 2, 1], [0, 0, 1]]], np.float32)
    inputs = (means, quats, np.full((1, 2, 3), 0.5, np.float32), opacities, viewmats, Ks)
    colors, backgrounds = np.ones((1, 2, 5), np.float32), np.ones((1, 5), np.float32)
    projected = project(*inputs, camera)
    tiles = bin_tiles(projected, colors, camera)
    image = composite(tiles, colors, projected.depths, backgrounds, camera, 5, False)
    v_means2d, v_conics, _, v_opacities, _, _ = composite_vjp(
        *(tiles, colors, projected.depths, projected.opacities, camera, image, False),
        *(np.ones_like(image.colors), np.ones_like(image.alphas), False),
    )
    project_vjp(inputs, camera, projected, v_means2d, projected.depths, v_conics, v_opacities, True)
