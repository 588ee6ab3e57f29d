"""What moves in a clip: masks of moving pixels, optical flow, and whether the camera itself moves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int32, UInt8

from lagsplat_ns.data.background import largest_channel

__all__ = ["CameraMotion", "FlowMeter", "MovingPixels", "camera_motion"]


class MovingPixels:
    """Separates moving pixels from the static background, with thresholds measured in the clip itself.

    A pixel moves where the largest channel differs from the background by more than six times the clip's noise (at
    least 14, at most 24 gray levels) plus a multiple of what that pixel usually differs by (edges that flicker under
    compression). Regions of a few pixels, and regions without one pixel well above its threshold, are noise; small
    holes in a region belong to it.
    """

    def __init__(
        self,
        background: UInt8[np.ndarray, "H W 3"],
        samples: UInt8[np.ndarray, "S H W 3"],
        noise: float,
        floor: float = 14.0,
    ) -> None:
        self.background = background
        self.base = float(np.clip(6 * noise, floor, 24))
        # The lower quartile: a thing that rests here half of the time must not pass for flicker.
        residuals = np.stack([self._residual(sample) for sample in samples])
        usual = np.quantile(residuals, 0.25, axis=0, method="lower").astype(np.float32)
        self.threshold = np.minimum(self.base + 4 * cv2.GaussianBlur(usual, (0, 0), 1.0), 80.0)
        self.min_area = max(4, usual.size // 10000)
        self.max_hole = max(4, usual.size // 1500)

    @classmethod
    def fitted(
        cls, background: UInt8[np.ndarray, "H W 3"], samples: UInt8[np.ndarray, "S H W 3"], noise: float
    ) -> MovingPixels:
        """With the usual threshold, or a lower one where that shows motion in many more of the samples."""
        usual, fine = (cls(background, samples, noise, floor) for floor in (14.0, 8.0))
        counts = [sum(bool(detector.mask(sample).any()) for sample in samples) for detector in (usual, fine)]
        return fine if counts[1] > 1.5 * counts[0] else usual

    def _residual(self, frame: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "H W"]:
        difference = frame.astype(np.int16) - self.background
        # A lamp that flickers or an automatic exposure shifts the whole picture: the median shift is not motion.
        shift = np.median(difference[::4, ::4].reshape(-1, 3), axis=0).astype(np.int16)
        return largest_channel(np.abs(difference - shift)).astype(np.uint8)

    def mask(self, frame: UInt8[np.ndarray, "H W 3"]) -> Bool[np.ndarray, "H W"]:
        """True where the frame shows something that moves."""
        residual = self._residual(frame)
        moving = (residual > self.threshold).astype(np.uint8)
        moving = cv2.morphologyEx(moving, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
        count, labels, stats = _regions(moving, 8)
        keep = stats[:, cv2.CC_STAT_AREA] >= self.min_area
        keep[0] = False
        sure = np.bincount(labels[residual > 1.5 * self.threshold], minlength=count) > 0
        return self._filled((keep & sure)[labels])

    def _filled(self, mask: Bool[np.ndarray, "H W"]) -> Bool[np.ndarray, "H W"]:
        """The mask without its small holes."""
        _, labels, stats = _regions((~mask).astype(np.uint8), 4)
        is_hole = stats[:, cv2.CC_STAT_AREA] <= self.max_hole
        is_hole[0] = False
        return mask | is_hole[labels]


def _regions(
    mask: UInt8[np.ndarray, "H W"], connectivity: int
) -> tuple[int, Int32[np.ndarray, "H W"], Int32[np.ndarray, "K 5"]]:
    """Connected regions: their number with the outside, a label per pixel, and OpenCV's statistics per label."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=connectivity)
    return count, np.asarray(labels, dtype=np.int32), np.asarray(stats, dtype=np.int32)


class FlowMeter:
    """Dense optical flow from each frame to the next, pixels (DIS, medium preset)."""

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self._previous: np.ndarray | None = None

    def next(self, frame: UInt8[np.ndarray, "H W 3"]) -> Float16[np.ndarray, "H W 2"] | None:
        """Flow from the frame given before to this one; None for the first frame."""
        gray = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        previous, self._previous = self._previous, gray
        if previous is None:
            return None
        if min(gray.shape) < 32:  # DIS needs room for its patches at the coarsest scale
            big = (max(32, gray.shape[1]), max(32, gray.shape[0]))
            scale = np.array([gray.shape[1] / big[0], gray.shape[0] / big[1]], dtype=np.float32)
            flow = self._calc(cv2.resize(previous, big), cv2.resize(gray, big))
            return (cv2.resize(flow, gray.shape[::-1]) * scale).astype(np.float16)
        return self._calc(previous, gray).astype(np.float16)

    def _calc(self, previous: np.ndarray, gray: np.ndarray) -> np.ndarray:
        return self._dis.calc(previous, gray, np.zeros((*gray.shape, 2), np.float32))


@dataclass(frozen=True)
class CameraMotion:
    """How far the picture as a whole shifts against the first frame."""

    shift_px: float
    """largest shift of a picture corner, pixels"""
    frame: int
    """frame number at which it was measured"""
    agreeing: float
    """share of tracked points that follow this one motion"""
    num_points: int

    @property
    def is_moving(self) -> bool:
        return self.shift_px > 1.5 and self.agreeing >= 0.6 and self.num_points >= 20


def camera_motion(samples: UInt8[np.ndarray, "S H W 3"], frames: np.ndarray) -> CameraMotion:
    """Motion of the whole picture, from points tracked through the samples and one similarity fitted to them.

    Points come from every part of the picture, and a motion counts only if undoing it brings the edges of both pictures
    together, so that a large thing cannot pass for the camera. Where half of the points are lost or stray, new ones
    take over. frames: the samples' frame numbers.
    """
    gray = [cv2.cvtColor(sample, cv2.COLOR_RGB2GRAY) for sample in samples]
    height, width = gray[0].shape
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], dtype=np.float64)
    key, to_key = 0, np.eye(3)  # where points were last chosen, and the first sample's motion up to there
    start = points = _spread_points(gray[0])
    alive = np.ones(len(start), dtype=bool)
    worst = CameraMotion(0.0, int(frames[0]), 0.0, len(start))
    for k in range(1, len(gray)):
        transform, agreeing = None, 0.0
        if alive.sum() >= 12:
            moved, found, _ = cv2.calcOpticalFlowPyrLK(gray[k - 1], gray[k], points, points.copy(), winSize=(21, 21))
            alive &= found.ravel() == 1
            points = np.asarray(moved, dtype=np.float32)
            transform, agreeing = _similarity(start, points, alive)
        if transform is not None and (agreeing < 0.6 or not _brings_together(gray[key], gray[k], transform)):
            transform = None
        if transform is not None:
            here = transform @ to_key
            shift = float(np.linalg.norm(corners @ here[:2, :2].T + here[:2, 2] - corners, axis=1).max())
            if shift > worst.shift_px:
                worst = CameraMotion(shift, int(frames[k]), agreeing, len(start))
        if alive.sum() < max(12, 0.5 * len(start)) or agreeing < 0.6:
            key, to_key = k, to_key if transform is None else transform @ to_key
            start = points = _spread_points(gray[k])
            alive = np.ones(len(start), dtype=bool)
    return worst


def _brings_together(
    first: UInt8[np.ndarray, "H W"], later: UInt8[np.ndarray, "H W"], transform: Float64[np.ndarray, "3 3"]
) -> bool:
    """Whether undoing the motion makes the edges of `first` match `later` clearly better than leaving it."""
    size = (first.shape[1], first.shape[0])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    undone = cv2.warpAffine(later, transform[:2], size, flags=flags)
    inside = cv2.warpAffine(np.ones_like(later), transform[:2], size, flags=flags) > 0
    slope = np.hypot(cv2.Sobel(first, cv2.CV_32F, 1, 0), cv2.Sobel(first, cv2.CV_32F, 0, 1))
    edges = inside & (slope > max(40.0, float(np.quantile(slope, 0.85))))
    if edges.sum() < 50:
        return False
    before, after = (np.abs(first.astype(np.float32) - other)[edges].mean() for other in (later, undone))
    return bool(after < 0.75 * before)


def _similarity(
    start: Float32[np.ndarray, "P 1 2"], points: Float32[np.ndarray, "P 1 2"], alive: Bool[np.ndarray, " P"]
) -> tuple[Float64[np.ndarray, "3 3"] | None, float]:
    """Turn, scale and shift that carries `start` to `points`, and the share of the tracked points that follow it."""
    if alive.sum() < 12:
        return None, 0.0
    affine, inliers = cv2.estimateAffinePartial2D(
        start[alive], points[alive], method=cv2.RANSAC, ransacReprojThreshold=1.5
    )
    if affine is None:
        return None, 0.0
    return np.vstack([affine, [0.0, 0.0, 1.0]]), float(inliers.mean())


def _spread_points(gray: UInt8[np.ndarray, "H W"], cells: int = 5, per_cell: int = 6) -> Float32[np.ndarray, "P 1 2"]:
    """Corners worth tracking, at most `per_cell` from every cell of a grid over the picture."""
    found = []
    rows = np.linspace(0, gray.shape[0], cells + 1).astype(int)
    columns = np.linspace(0, gray.shape[1], cells + 1).astype(int)
    quality = cv2.cornerMinEigenVal(gray, 3).max() * 0.01
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            cell = gray[top:bottom, left:right]
            if min(cell.shape) < 5:
                continue
            corners = cv2.goodFeaturesToTrack(cell, per_cell, 0.05, 4)
            if corners is None:
                continue
            strength = cv2.cornerMinEigenVal(cell, 3)
            for x, y in corners[:, 0]:
                if strength[int(y), int(x)] > quality:
                    found.append([[x + left, y + top]])
    return np.array(found, dtype=np.float32).reshape(-1, 1, 2)
