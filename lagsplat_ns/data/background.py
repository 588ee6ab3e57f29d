"""The static background of a clip from a fixed camera.

Per pixel the background is the color seen most often. Where a thing rests at one place most of the time, that color is
the thing's own: in every frame in which the thing is away, a blob then differs from the background picture although the
frame shows bare background there. Such a blob (a ghost) has its outline in the background picture and not in the frame,
a real thing the other way round; ghosts are replaced by what the frames show there. After that, a pixel with several
colors takes the one that continues its surroundings, where one clearly does, and what a moving thing always covers is
filled in from there.
"""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Bool, Float32, UInt8
from scipy.ndimage import gaussian_filter

__all__ = ["estimate_background", "largest_channel", "noise_level", "sample_indices"]

_NUM_SAMPLES = 48
_NUM_CANDIDATES = 15
_SETTLED = 0.85  # share of the samples from which a color is the background whatever surrounds it
_EDGE_RATIO = 1.4  # how much stronger an outline has to be in one picture than in the other to decide


def sample_indices(num_frames: int, num_samples: int = _NUM_SAMPLES) -> np.ndarray:
    """At most `num_samples` frame numbers, evenly spread."""
    return np.unique(np.linspace(0, num_frames - 1, min(num_frames, num_samples)).round().astype(int))


def noise_level(samples: UInt8[np.ndarray, "S H W 3"], following: UInt8[np.ndarray, "S H W 3"]) -> float:
    """Standard deviation of a static pixel, in gray levels of 255, from pairs of neighboring frames.

    Robust: more than half of the pixels of a pair may move before the figure follows them.
    """
    difference = cv2.absdiff(samples, following).astype(np.float32).mean(axis=-1).reshape(len(samples), -1)
    # E|a - b| of two equal Gaussians is 2 sigma / sqrt(pi); the lower half of the pixels stands for the static ones.
    lower = np.partition(difference, difference.shape[1] // 2, axis=1)[:, : difference.shape[1] // 2 + 1]
    return float(max(0.3, np.median(lower.mean(axis=1)) * np.sqrt(np.pi) / 2 * 1.6))


def largest_channel(picture: np.ndarray) -> np.ndarray:
    """Per pixel the largest of the three channels."""
    return np.maximum(np.maximum(picture[..., 0], picture[..., 1]), picture[..., 2])


def estimate_background(samples: UInt8[np.ndarray, "S H W 3"], noise: float) -> UInt8[np.ndarray, "H W 3"]:
    """The static background; `noise` in gray levels."""
    tolerance = float(np.clip(4 * noise, 6, 24))
    background = _most_frequent(samples, tolerance)
    for _ in range(3):
        replaced, background = _replace_ghosts(samples, background, 2 * tolerance)
        if not replaced:
            break
    return np.round(_continued(samples, background, tolerance)).astype(np.uint8)


def _most_frequent(samples: UInt8[np.ndarray, "S H W 3"], tolerance: float) -> Float32[np.ndarray, "H W 3"]:
    """Per pixel, the mean of the largest group of samples that lie within `tolerance` of one of them.

    Where no group is clearly larger than the one around the median, the median's group is taken, and where no group is
    large at all (nothing stands still there) the median itself, so that the picture stays smooth.
    """
    median = np.median(samples, axis=0).astype(np.uint8)
    count, best = _group(samples, median, tolerance)
    # A group has to beat the median's by this much; then it is compared with the best so far.
    to_beat = 1.25 * count
    for candidate in samples[sample_indices(len(samples), _NUM_CANDIDATES)]:
        count, mean = _group(samples, candidate, tolerance)
        better = cv2.medianBlur((count > to_beat).astype(np.uint8), 3).astype(bool) & (count > to_beat)
        best[better], to_beat[better] = mean[better], count[better]
    nothing_stands_still = to_beat < 0.4 * len(samples)
    best[nothing_stands_still] = median[nothing_stands_still]
    return best


def _filled(
    picture: Float32[np.ndarray, "H W 3"], known: Bool[np.ndarray, "H W"]
) -> tuple[Float32[np.ndarray, "H W 3"], Float32[np.ndarray, "H W"]]:
    """Unknown pixels from the nearest known ones, wider and wider around, and how much those differ [H, W].

    Source: normalized convolution, Knutsson and Westin 1993.
    """
    result, spread = picture.copy(), np.zeros(picture.shape[:2], dtype=np.float32)
    missing, sigma = ~known, 3.0
    weight = known.astype(np.float32)
    values = picture * weight[..., None]
    while missing.any() and sigma < max(picture.shape[:2]):
        total = np.maximum(cv2.GaussianBlur(weight, (0, 0), sigma), 1e-12)
        mean = cv2.GaussianBlur(values, (0, 0), sigma) / total[..., None]
        square = cv2.GaussianBlur(np.square(picture) * weight[..., None], (0, 0), sigma) / total[..., None]
        reached = missing & (total > 0.02)
        result[reached] = mean[reached]
        spread[reached] = np.sqrt(np.maximum(square - np.square(mean), 0.0)).max(-1)[reached]
        missing &= ~reached
        sigma *= 2.0
    return result, spread


def _looks_like_what_moves(
    samples: UInt8[np.ndarray, "S H W 3"],
    background: Float32[np.ndarray, "H W 3"],
    changes: Bool[np.ndarray, "H W"],
    foreign: Bool[np.ndarray, "H W"],
    tolerance: float,
) -> Bool[np.ndarray, "H W"]:
    """Where the background shows a color that is common on moving things and rare on what stands still."""
    bins = 12

    def histogram(colors: np.ndarray) -> np.ndarray:
        edges = [np.linspace(0, 256, bins + 1)] * 3
        counts = np.histogramdd(colors.reshape(-1, 3), bins=edges)[0]
        return gaussian_filter(counts, 0.7) / max(counts.sum(), 1.0)

    sure = changes & ~foreign
    away = np.abs(samples[:, sure].astype(np.float32) - background[sure]).max(-1) > 3 * tolerance
    of_things, of_rest = histogram(samples[:, sure][away]), histogram(background[~changes])
    where = tuple(np.clip(background * (bins / 256), 0, bins - 1).astype(int).transpose(2, 0, 1))
    return (of_things[where] > 3 * of_rest[where]) & (of_things[where] > 1e-3)


def _continued(
    samples: UInt8[np.ndarray, "S H W 3"], background: Float32[np.ndarray, "H W 3"], tolerance: float
) -> Float32[np.ndarray, "H W 3"]:
    """The background with pixels that change replaced, where their color does not continue what stands still around.

    In its place comes the color seen there at other times that does, or the surroundings themselves where a moving
    thing is never away. Only colors that things show elsewhere while they move are replaced.
    """
    low, high = np.quantile(samples, (0.04, 0.96), axis=0)
    changes = (high - low).max(-1) > tolerance
    changes = cv2.dilate(changes.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
    if not changes.any() or changes.mean() > 0.6:
        return background
    around, spread = _filled(background, ~changes)
    allowed = 2 * tolerance + 2 * spread
    distance = np.abs(background - around).max(-1)
    foreign = changes & (distance > 2 * allowed)
    foreign &= _group(samples, np.round(background).astype(np.uint8), tolerance)[0] < _SETTLED * len(samples)
    foreign &= _looks_like_what_moves(samples, background, changes, foreign, tolerance)
    if not foreign.any():
        return background
    # the faint border of what was found belongs to it
    rim = cv2.dilate(foreign.astype(np.uint8), np.ones((15, 15), np.uint8)).astype(bool)
    foreign |= rim & changes & (distance > 0.5 * tolerance + spread)
    near = np.abs(samples.astype(np.float32) - around).max(-1) < allowed  # [S, H, W]
    count = near.sum(0)
    result = background.copy()
    seen = foreign & (count >= max(2, 0.06 * len(samples)))
    mean = np.einsum("shw,shwc->hwc", near.astype(np.float32), samples) / np.maximum(count, 1)[..., None]
    result[seen] = mean[seen]
    # never bare: only where the surroundings are plain enough to know what is behind
    covered = foreign & ~seen & (spread < tolerance) & ((high - low).max(-1) > tolerance)
    result[covered] = around[covered]
    return result


def _group(
    samples: UInt8[np.ndarray, "S H W 3"], center: UInt8[np.ndarray, "H W 3"], tolerance: float
) -> tuple[Float32[np.ndarray, "H W"], Float32[np.ndarray, "H W 3"]]:
    """How many samples lie within `tolerance` of `center` at each pixel, and their mean."""
    count = np.zeros(center.shape[:2], dtype=np.float32)
    total = np.zeros(center.shape, dtype=np.float32)
    for sample in samples:
        near = (largest_channel(cv2.absdiff(sample, center)) < tolerance).astype(np.float32)
        count += near
        total += near[..., None] * sample
    return count, np.where(count[..., None] > 0, total / np.maximum(count, 1)[..., None], center).astype(np.float32)


def _replace_ghosts(
    samples: UInt8[np.ndarray, "S H W 3"], background: Float32[np.ndarray, "H W 3"], threshold: float
) -> tuple[bool, Float32[np.ndarray, "H W 3"]]:
    """Whether ghosts were found, and the background with their pixels taken from the frames that show them bare."""
    height, width = background.shape[:2]
    picture = np.round(background).astype(np.uint8)
    background_edges = _edges(picture)
    ghost_votes = np.zeros((height, width), dtype=np.int32)
    thing_votes = np.zeros((height, width), dtype=np.int32)
    bare_total = np.zeros((height, width, 3), dtype=np.float32)
    for sample in samples:
        differs = _difference(sample[None], picture)[0] > threshold
        edges = _edges(sample)
        for blob in _blobs(differs, min_area=max(6, height * width // 4000)):
            rows, columns = blob.where
            outline = blob.mask & ~cv2.erode(blob.mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
            in_background = float(background_edges[rows, columns][outline].mean())
            in_frame = float(edges[rows, columns][outline].mean())
            if in_background > _EDGE_RATIO * in_frame:
                # its surroundings are bare as well; a rim of two pixels catches the ghost's faint border
                bare = cv2.dilate(blob.mask.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
                ghost_votes[rows, columns] += bare
                bare_total[rows, columns] += bare[..., None] * sample[rows, columns]
            elif in_frame > _EDGE_RATIO * in_background:
                thing_votes[rows, columns] += blob.mask
    ghost = (ghost_votes > thing_votes) & (ghost_votes >= max(2, len(samples) // 32))
    result = background.copy()
    result[ghost] = bare_total[ghost] / ghost_votes[ghost][:, None]
    return bool(ghost.any()), result


class _Blob:
    """One connected region inside its bounding box (with a border of three pixels where there is room)."""

    def __init__(self, labels: np.ndarray, label: int, box: np.ndarray) -> None:
        x, y, w, h = (int(v) for v in box[:4])
        top, left = max(0, y - 3), max(0, x - 3)
        self.where = (slice(top, y + h + 3), slice(left, x + w + 3))
        self.mask: Bool[np.ndarray, "h w"] = labels[self.where] == label


def _blobs(mask: Bool[np.ndarray, "H W"], min_area: int) -> list[_Blob]:
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, np.ones((2, 2), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(closed, connectivity=8)
    return [_Blob(labels, k, stats[k]) for k in range(1, count) if stats[k, cv2.CC_STAT_AREA] >= min_area]


def _edges(picture: UInt8[np.ndarray, "H W 3"]) -> Float32[np.ndarray, "H W"]:
    """Strength of the strongest channel's gradient, taken over a 3 x 3 neighborhood."""
    along = np.abs(cv2.Sobel(picture, cv2.CV_32F, 1, 0)).max(axis=-1)
    across = np.abs(cv2.Sobel(picture, cv2.CV_32F, 0, 1)).max(axis=-1)
    return cv2.dilate(np.hypot(along, across), np.ones((3, 3), np.uint8))


def _difference(
    pictures: UInt8[np.ndarray, "S H W 3"], reference: UInt8[np.ndarray, "H W 3"]
) -> UInt8[np.ndarray, "S H W"]:
    """Largest absolute difference over the channels."""
    return np.stack([largest_channel(cv2.absdiff(picture, reference)) for picture in pictures])
