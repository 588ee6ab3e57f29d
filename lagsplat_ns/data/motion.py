"""What moves in a clip: masks of moving pixels, optical flow, and whether the camera itself moves."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float16, Float32, UInt8

__all__ = ["CameraMotion", "FlowMeter", "MovingPixels", "camera_motion"]


class MovingPixels:
    """Separates moving pixels from the static background, with thresholds measured in the clip itself.

    A pixel moves where the largest channel differs from the background by more than six times the clip's noise (10 to
    24 gray levels) plus twice what the same pixel usually differs by (edges that flicker under compression). Regions
    of a few pixels, and regions without one pixel well above its threshold, are noise.
    """

    def __init__(
        self, background: UInt8[np.ndarray, "H W 3"], samples: UInt8[np.ndarray, "S H W 3"], noise: float
    ) -> None:
        self.background = background
        self.base = float(np.clip(6 * noise, 10, 24))
        usual = np.median([self._residual(sample) for sample in samples], axis=0).astype(np.float32)
        self.threshold = np.minimum(self.base + 2 * cv2.GaussianBlur(usual, (0, 0), 1.0), 80.0)
        self.min_area = max(4, usual.size // 10000)

    def _residual(self, frame: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "H W"]:
        difference = frame.astype(np.int16) - self.background
        # A lamp that flickers or an automatic exposure shifts the whole picture: the median shift is not motion.
        shift = np.median(difference[::4, ::4].reshape(-1, 3), axis=0).astype(np.int16)
        return np.abs(difference - shift).max(axis=-1).astype(np.uint8)

    def mask(self, frame: UInt8[np.ndarray, "H W 3"]) -> Bool[np.ndarray, "H W"]:
        """True where the frame shows something that moves."""
        residual = self._residual(frame)
        moving = (residual > self.threshold).astype(np.uint8)
        moving = cv2.morphologyEx(moving, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
        count, labels, stats, _ = cv2.connectedComponentsWithStats(moving, connectivity=8)
        keep = stats[:, cv2.CC_STAT_AREA] >= self.min_area
        keep[0] = False
        sure = np.zeros(count, dtype=bool)
        sure[np.unique(labels[residual > 1.5 * self.threshold])] = True
        return (keep & sure)[labels]


class FlowMeter:
    """Dense optical flow from each frame to the next, pixels (DIS, medium preset)."""

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
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
            flow = self._dis.calc(cv2.resize(previous, big), cv2.resize(gray, big), None)
            return (cv2.resize(flow, gray.shape[::-1]) * scale).astype(np.float16)
        return self._dis.calc(previous, gray, None).astype(np.float16)


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
        return self.shift_px > 1.5 and self.agreeing >= 0.6 and self.num_points >= 12


def camera_motion(samples: UInt8[np.ndarray, "S H W 3"], frames: np.ndarray) -> CameraMotion:
    """Motion of the whole picture, from points tracked through the samples and one similarity fitted to them.

    Points come from every part of the picture, so that a thing in one place cannot pass for the camera.
    frames: the samples' frame numbers.
    """
    gray = [cv2.cvtColor(sample, cv2.COLOR_RGB2GRAY) for sample in samples]
    height, width = gray[0].shape
    start = _spread_points(gray[0])
    worst = CameraMotion(0.0, int(frames[0]), 0.0, len(start))
    if len(start) < 12:
        return worst
    points, alive = start, np.ones(len(start), dtype=bool)
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], dtype=np.float64)
    for k in range(1, len(gray)):
        moved, found, _ = cv2.calcOpticalFlowPyrLK(gray[k - 1], gray[k], points, None, winSize=(15, 15), maxLevel=3)
        alive &= found.ravel() == 1
        points = moved
        if alive.sum() < 12:
            break
        transform, inliers = cv2.estimateAffinePartial2D(
            start[alive], points[alive], method=cv2.RANSAC, ransacReprojThreshold=1.0
        )
        if transform is None:
            continue
        shift = float(np.linalg.norm(corners @ transform[:, :2].T + transform[:, 2] - corners, axis=1).max())
        agreeing = float(inliers.sum()) / len(start)
        if agreeing >= 0.6 and shift > worst.shift_px:
            worst = CameraMotion(shift, int(frames[k]), agreeing, len(start))
    return worst


def _spread_points(gray: UInt8[np.ndarray, "H W"], cells: int = 5, per_cell: int = 6) -> Float32[np.ndarray, "P 1 2"]:
    """Corners worth tracking, at most `per_cell` from every cell of a grid over the picture."""
    found = []
    rows = np.linspace(0, gray.shape[0], cells + 1).astype(int)
    columns = np.linspace(0, gray.shape[1], cells + 1).astype(int)
    quality = cv2.cornerMinEigenVal(gray, 3).max() * 0.01
    for top, bottom in zip(rows[:-1], rows[1:]):
        for left, right in zip(columns[:-1], columns[1:]):
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
