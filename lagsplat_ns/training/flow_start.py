"""A first guess of the motion: rigid motions chained along the optical flow and pinned to a reference picture."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8

_FEWEST_PIXELS = 12
"""moving pixels of a frame that make a part worth looking for"""


@dataclass(frozen=True)
class FlowStart:
    """Rigid motions of the picture plane that carry the reference frame's moving pixels through the clip.

    Pixel coordinates (origin top left, centers at +0.5). point -> R(angle) (point - origin) + origin + translation.
    angles [T] radians (from +u to +v), translations [T, 2] px, points [K, 2] moving pixels of frame `reference`;
    coverage: share of the moving pixels that the carried points explain, median over the frames.
    """

    reference: int
    origin: Float[np.ndarray, " 2"]
    angles: Float[np.ndarray, " T"]
    translations: Float[np.ndarray, "T 2"]
    points: Float[np.ndarray, "K 2"]
    coverage: float

    def at(self, frames: list[int]) -> FlowStart:
        """The same part in some frames only."""
        return replace(self, angles=self.angles[frames], translations=self.translations[frames])

    def about(self, origin: Float[np.ndarray, " 2"]) -> FlowStart:
        """The same motions written about another origin."""
        arm = origin - self.origin
        turned = np.stack([_rotation(angle) @ arm for angle in self.angles])
        return replace(self, origin=origin, translations=self.translations + turned - arm)


def reference_frame(masks: Bool[np.ndarray, "T H W"], flow: Float[np.ndarray, "S H W 2"]) -> int:
    """The frame that shows the thing whole and sharp: usual number of moving pixels, little motion."""
    areas = masks.reshape(len(masks), -1).sum(1).astype(float)
    low, high = np.quantile(areas[areas > 0], (0.5, 0.95)) if (areas > 0).any() else (0.0, 0.0)
    speeds = np.full(len(masks), np.inf)
    for t in range(len(flow)):
        if areas[t] > 0:
            speeds[t] = np.linalg.norm(flow[t][masks[t]].astype(np.float32), axis=-1).mean()
    whole = (areas >= low) & (areas <= high)
    speeds[~whole] = np.inf
    return int(np.argmin(speeds)) if np.isfinite(speeds).any() else int(np.argmax(areas))


def _sample(image: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Bilinear samples of an image [H, W, C] at pixel points [K, 2]; borders are replicated."""
    grid = (points - 0.5).astype(np.float32)
    out = cv2.remap(image, grid[:, :1], grid[:, 1:], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return out.reshape(len(points), -1)


def _rotation(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def _rigid_fit(source: np.ndarray, target: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Angle and translation with target ~ R source + t (weighted Procrustes, robustly reweighted)."""
    angle, shift, robust = 0.0, np.zeros(2), np.ones(len(source))
    for _ in range(5):
        w = (weights * robust)[:, None]
        total = max(w.sum(), 1e-9)
        mean_source, mean_target = (w * source).sum(0) / total, (w * target).sum(0) / total
        cross = (w * (source - mean_source)).T @ (target - mean_target)
        angle = float(np.arctan2(cross[0, 1] - cross[1, 0], cross[0, 0] + cross[1, 1]))
        shift = mean_target - _rotation(angle) @ mean_source
        residual = np.linalg.norm(source @ _rotation(angle).T + shift - target, axis=1)
        robust = 1.0 / (1.0 + (residual / max(2.0 * np.median(residual), 0.1)) ** 2)
    return angle, shift


def _align(
    image: np.ndarray, gradients: tuple[np.ndarray, np.ndarray], points: np.ndarray, colors: np.ndarray,
    origin: np.ndarray, angle: float, shift: np.ndarray, iterations: int, prior: np.ndarray,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """Gauss-Newton on the colors of carried points (Lucas-Kanade for a rigid template) with a prior on the start."""
    arm = points - origin
    start = np.array([angle, *shift])
    state = start.copy()
    for _ in range(iterations):
        placed = arm @ _rotation(state[0]).T + origin + state[1:]
        residual = _sample(image, placed) - colors
        slope_u, slope_v = _sample(gradients[0], placed), _sample(gradients[1], placed)
        spun = arm @ _rotation(state[0] + np.pi / 2).T
        jac = np.stack([slope_u * spun[:, :1] + slope_v * spun[:, 1:], slope_u, slope_v], -1).reshape(-1, 3)
        size = np.linalg.norm(residual, axis=1)
        robust = np.repeat(1.0 / (1.0 + (size / 0.1) ** 2), residual.shape[1])
        normal = (jac * robust[:, None]).T @ jac + np.diag(prior)
        step = np.linalg.solve(normal, (jac * robust[:, None]).T @ residual.ravel() + prior * (state - start))
        state = state - step
        if np.abs(step[1:]).max() < 1e-3:
            break
    return float(state[0]), state[1:]


def _scales(frame: np.ndarray) -> list[np.ndarray]:
    """A picture in [0, 1], blurred widely and slightly."""
    return [cv2.GaussianBlur(frame.astype(np.float32) / 255, (0, 0), sigma) for sigma in (1.5, 0.7)]


class _Template:
    """Moving pixels of a reference frame, carried rigidly and compared by color."""

    def __init__(self, frame: np.ndarray, points: np.ndarray, max_points: int, seed: int) -> None:
        chosen = np.random.default_rng(seed).permutation(len(points))[:max_points]
        self.points, self.carried, self.origin = points, points[chosen], points.mean(0)
        self.colors = [_sample(image, self.carried) for image in _scales(frame)]
        inertia = np.square(self.carried - self.origin).sum(1).mean()
        self.prior = len(self.carried) * np.array([1e-3 * inertia, 1e-3, 1e-3])

    def place(self, angle: float, shift: np.ndarray, points: np.ndarray | None = None) -> np.ndarray:
        arm = (self.carried if points is None else points) - self.origin
        return arm @ _rotation(angle).T + self.origin + shift

    def align(self, frame: np.ndarray, angle: float, shift: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Refine a placement on a frame, wide blur first; also the remaining mean color difference."""
        for image, colors in zip(_scales(frame), self.colors, strict=True):
            slopes = (cv2.Scharr(image, cv2.CV_32F, 1, 0) / 32, cv2.Scharr(image, cv2.CV_32F, 0, 1) / 32)
            angle, shift = _align(image, slopes, self.carried, colors, self.origin, angle, shift, 4, self.prior)
        gap = np.abs(_sample(image, self.place(angle, shift)) - self.colors[-1]).mean()
        return angle, shift, float(gap)

    def find(self, frames: np.ndarray, masks: np.ndarray) -> tuple[int, float, np.ndarray]:
        """The frame of another clip where this template fits best, with its placement there."""
        best: tuple[float, int, float, np.ndarray] | None = None
        for t in np.unique(np.linspace(0, len(frames) - 1, 40).astype(int)):
            if not masks[t].any():
                continue
            center = np.stack(np.nonzero(masks[t])[::-1], 1).mean(0) + 0.5
            for turn in (-0.6, -0.3, 0.0, 0.3, 0.6):
                angle, shift, gap = self.align(frames[t], turn, center - self.origin)
                if best is None or gap < best[0]:
                    best = (gap, int(t), angle, shift)
        if best is None:
            return 0, 0.0, np.zeros(2)
        return best[1], best[2], best[3]


def start_from_flow(
    frames: UInt8[np.ndarray, "T H W 3"],
    masks: Bool[np.ndarray, "T H W"],
    flow: Float[np.ndarray, "S H W 2"],
    template: tuple[UInt8[np.ndarray, "H W 3"], FlowStart] | None = None,
    max_points: int = 1500,
    seed: int = 0,
) -> FlowStart:
    """Chain one rigid motion outward from a reference frame.

    Every step predicts with a robust rigid fit to the flow at the carried points, then pins the points to the
    reference picture's colors, so that errors do not add up along the clip. With `template` (the reference frame of
    another clip of the same thing, and its start) the motions refer to that clip's reference.
    Source: Lucas and Kanade 1981 (alignment); weighted Procrustes, Schoenemann 1966.
    """
    num_frames = len(masks)
    angles, shifts = np.zeros(num_frames), np.zeros((num_frames, 2))
    if template is None:
        reference = reference_frame(masks, flow)
        points = np.stack(np.nonzero(masks[reference])[::-1], 1) + 0.5
        thing = _Template(frames[reference], points, max_points, seed)
    else:
        thing = _Template(template[0], template[1].points, max_points, seed)
        reference, angles[:], shifts[:] = thing.find(frames, masks)
    coverages = []
    for direction in (1, -1):
        t = reference
        while 0 <= t + direction < num_frames:
            placed = thing.place(angles[t], shifts[t])
            field = flow[t if direction > 0 else t - 1].astype(np.float32)
            moved = _sample(field, placed)
            if direction < 0:  # the forward flow, looked up where the points came from
                moved = -_sample(field, placed - moved)
            weights = 0.02 + _sample(masks[t].astype(np.float32), placed)[:, 0]
            turn, shift = _rigid_fit(placed, placed + moved, weights)
            predicted = _rotation(turn) @ (thing.origin + shifts[t]) + shift - thing.origin
            t += direction
            angles[t], shifts[t], _ = thing.align(frames[t], angles[t - direction] + turn, predicted)
            coverages.append(_coverage(masks[t], thing.place(angles[t], shifts[t], thing.points)))
    coverage = float(np.median([c for c in coverages if c is not None] or [0.0]))
    return FlowStart(reference, thing.origin, angles, shifts, thing.points, coverage)


def _footprint(placed: np.ndarray, shape: tuple[int, ...]) -> Bool[np.ndarray, "H W"]:
    """Pixels within two pixels of the points."""
    height, width = shape
    inside = (placed[:, 0] >= 0) & (placed[:, 0] < width) & (placed[:, 1] >= 0) & (placed[:, 1] < height)
    hit = np.zeros(shape, np.uint8)
    hit[placed[inside, 1].astype(int), placed[inside, 0].astype(int)] = 1
    return cv2.dilate(hit, np.ones((5, 5), np.uint8)) > 0


def _coverage(mask: np.ndarray, placed: np.ndarray) -> float | None:
    """Share of a frame's moving pixels on the footprint of the points; None for a frame without any."""
    return float(_footprint(placed, mask.shape)[mask].mean()) if mask.any() else None


def uncovered(start: FlowStart, masks: Bool[np.ndarray, "T H W"]) -> Bool[np.ndarray, "T H W"]:
    """Moving pixels that the carried points of a start do not explain."""
    left = masks.copy()
    for t in range(len(masks)):
        placed = (start.points - start.origin) @ _rotation(start.angles[t]).T + start.origin + start.translations[t]
        left[t] &= ~_footprint(placed, masks.shape[1:])
    return left


def parts_from_flow(
    frames: UInt8[np.ndarray, "T H W 3"],
    masks: Bool[np.ndarray, "T H W"],
    flow: Float[np.ndarray, "S H W 2"],
    max_parts: int,
    enough: float = 0.88,
) -> list[FlowStart]:
    """Rigid parts one after the other, each on the moving pixels that those before it leave unexplained.

    Ends when `enough` of the moving pixels are explained in the usual frame, or at `max_parts`.
    """
    parts: list[FlowStart] = []
    left = masks
    total = masks.reshape(len(masks), -1).sum(1)
    while len(parts) < max_parts:
        parts.append(start_from_flow(frames, left, flow))
        left = uncovered(parts[-1], left)
        remaining = left.reshape(len(left), -1).sum(1)
        if np.median(remaining[total > 0] / total[total > 0]) <= 1.0 - enough or remaining.max() < _FEWEST_PIXELS:
            break
    return parts
