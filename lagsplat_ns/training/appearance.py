"""First Gaussians of a scene: a static set for the background picture, a moving set for the thing in one frame."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.render.filming import FilmingCamera

# depth offsets behind and before the picture plane, scene units: moving primitives always lie in front
STATIC_DEPTHS = (1e-3, 2e-3)
MOVING_DEPTHS = (-2e-3, -1e-3)
_THICKNESS = 1e-3


def object_mask(
    frame: UInt8[np.ndarray, "H W 3"],
    background: UInt8[np.ndarray, "H W 3"],
    mask: Bool[np.ndarray, "H W"],
    faint: float = 0.03,
) -> Bool[np.ndarray, "H W"]:
    """Moving pixels of one frame, grown over fainter differences that touch them (strings, soft edges)."""
    difference = np.abs(frame.astype(np.float32) - background.astype(np.float32)).max(-1) / 255
    candidates = ((difference > faint) | mask).astype(np.uint8)
    _, labels = cv2.connectedComponents(candidates, connectivity=8)
    touched = np.bincount(labels[mask], minlength=labels.max() + 1) > 0
    touched[0] = False
    grown = touched[labels]
    _, labels, stats, _ = cv2.connectedComponentsWithStats(grown.astype(np.uint8), connectivity=8)
    large = stats[:, cv2.CC_STAT_AREA] >= 0.02 * grown.sum()
    large[0] = False
    return large[labels]


def _scatter(probability: np.ndarray, count: int, rng: np.random.Generator) -> Float[np.ndarray, "K 2"]:
    """Pixel positions drawn from a picture of weights: evenly (low discrepancy along the cumulative sum), jittered."""
    cumulative = np.cumsum(probability.ravel().astype(np.float64))
    picks = (np.arange(count) + rng.random(count)) / count * cumulative[-1]
    flat = np.minimum(np.searchsorted(cumulative, picks), probability.size - 1)
    rows, columns = np.divmod(flat, probability.shape[1])
    return np.stack([columns, rows], 1) + rng.random((count, 2))


def _fill(
    scene: LatentScene, rows: slice, camera: FilmingCamera, pixels: np.ndarray, colors: np.ndarray,
    radii_px: np.ndarray, depths: tuple[float, float], opacity_logit: float, rng: np.random.Generator,
) -> None:  # fmt: skip
    params = scene.gauss_params
    device = params["means"].device
    plane = camera.plane_from_pixels(torch.from_numpy(pixels).float())
    depth = torch.from_numpy(rng.uniform(*depths, len(pixels))).float()
    log_scales = torch.log(torch.from_numpy(radii_px).float() * camera.pixel_size)
    with torch.no_grad():
        params["means"][rows] = torch.stack([plane[:, 0], depth, plane[:, 1]], 1).to(device)
        params["scales"][rows] = torch.stack(
            [log_scales, torch.full_like(log_scales, float(np.log(_THICKNESS))), log_scales], 1
        ).to(device)
        params["quats"][rows] = torch.tensor([1.0, 0.0, 0.0, 0.0], device=device)
        params["features_dc"][rows] = torch.logit(torch.from_numpy(colors).float().clamp(0.02, 0.98)).to(device)
        params["opacities"][rows] = opacity_logit


def fill_static(
    scene: LatentScene, camera: FilmingCamera, background: UInt8[np.ndarray, "H W 3"], seed: int = 0
) -> None:
    """Place the static primitives: denser where the background picture has edges."""
    rng = np.random.default_rng(seed)
    picture = background.astype(np.float32) / 255
    edges = np.abs(cv2.Laplacian(cv2.GaussianBlur(picture, (0, 0), 1.0), cv2.CV_32F)).max(-1)
    density = np.sqrt(edges) + 0.5 * np.sqrt(edges).mean() + 1e-4
    count = scene.num_gaussians - scene.num_moving
    pixels = _scatter(density, count, rng)
    height, width = density.shape
    columns = np.clip(pixels[:, 0].astype(int), 0, width - 1)
    rows = np.clip(pixels[:, 1].astype(int), 0, height - 1)
    spacing = np.sqrt(density.sum() / (count * density[rows, columns]))  # px between neighbors
    colors = picture[rows, columns]
    _fill(scene, slice(scene.num_moving, None), camera, pixels, colors, 0.75 * spacing, STATIC_DEPTHS, 1.0, rng)


def fill_moving(
    scene: LatentScene,
    camera: FilmingCamera,
    frame: UInt8[np.ndarray, "H W 3"],
    mask: Bool[np.ndarray, "H W"],
    chosen: slice,
    seed: int = 0,
) -> None:
    """Place some of the moving primitives evenly over a part as one frame shows it."""
    rng = np.random.default_rng(seed)
    count = chosen.stop - chosen.start
    pixels = _scatter(mask.astype(np.float32), count, rng)
    rows, columns = pixels[:, 1].astype(int), pixels[:, 0].astype(int)
    colors = frame[np.clip(rows, 0, mask.shape[0] - 1), np.clip(columns, 0, mask.shape[1] - 1)].astype(np.float32) / 255
    spacing = np.sqrt(max(mask.sum(), 1) / count)
    radii = np.full(count, max(0.8 * spacing, 0.4))
    _fill(scene, chosen, camera, pixels, colors, radii, MOVING_DEPTHS, 0.0, rng)


def set_frame_motions(
    scene: LatentScene,
    camera: FilmingCamera,
    origin_px: Float[np.ndarray, " 2"],
    angles: Float[np.ndarray, "T P"],
    translations_px: Float[np.ndarray, "T P 2"],
) -> None:
    """Store motions found in pixel coordinates (angle from +u to +v) as motions of the picture plane."""
    device = scene.frame_motions.device
    origin = camera.plane_from_pixels(torch.from_numpy(origin_px).float())
    flipped = torch.from_numpy(translations_px).float() * torch.tensor([1.0, -1.0]) * camera.pixel_size
    with torch.no_grad():
        scene.bases.origin.copy_(origin)
        motions = torch.cat([torch.from_numpy(-angles).float(), flipped.flatten(1)], dim=1)
        scene.frame_motions.copy_(motions.to(device))


def tensor_frames(frames: UInt8[np.ndarray, "F H W 3"], device: torch.device) -> Float[Tensor, "F H W 3"]:
    """Frames as floats in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(frames)).to(device).float() / 255
