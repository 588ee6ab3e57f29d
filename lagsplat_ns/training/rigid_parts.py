"""Rigid parts found from tracks: which points move together, and how.

Plane vectors are complex (u - i v, v pointing up). A part's motion carries a point c of the reference frame to
E_t c + s_t with E_t = exp(i angle_t). A picture tells where a point is only across edges: along an edge, and within a
plain area, tracks are guesses. Every distance here is therefore weighed by the point's structure tensor, seen from the
moving part: a plain disk that turns about its center counts as standing still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Complex, Float, Int, UInt8

_FRAMES, _ENOUGH = 40, 250
"""frames on which parts are told apart, and points of a part that tell its motion"""
_ALIKE = 0.15
"""mean color difference below which a point looks alike in two places"""
_SEED = 0.04
"""share of the points from which a new part grows"""
_EDGE = 0.02
"""color slope per pixel at which an edge says half of what a strong one says"""
_GUESS = 0.05
"""what a track says where the picture shows nothing, against a strong edge"""


@dataclass(frozen=True)
class TrackedPoints:
    """Points of a reference frame with their tracks and what the picture says about them.

    points [N]; tracks [T, N]; tensors [N, 2, 2]: say of the picture about a point's place, eigenvalues in (0, 1].
    """

    points: Complex[np.ndarray, " N"]
    tracks: Complex[np.ndarray, "T N"]
    tensors: Float[np.ndarray, "N 2 2"]

    def __getitem__(self, chosen: np.ndarray) -> TrackedPoints:
        return TrackedPoints(self.points[chosen], self.tracks[:, chosen], self.tensors[chosen])

    def thinned(self, most: int) -> TrackedPoints:
        """At most so many of the points, evenly chosen."""
        return self[np.unique(np.linspace(0, len(self) - 1, most).astype(int))] if len(self) > most else self

    def at(self, frames: np.ndarray) -> TrackedPoints:
        """The same points in some frames only."""
        return TrackedPoints(self.points, self.tracks[frames], self.tensors)

    def __len__(self) -> int:
        return len(self.points)


def structure_tensors(frame: UInt8[np.ndarray, "H W 3"], pixels: Complex[np.ndarray, " N"]) -> np.ndarray:
    """[N, 2, 2] at complex pixels u + i v, in axes u and -v (v pointing up).

    Source: Foerstner and Guelch 1987.
    """
    image = cv2.GaussianBlur(frame.astype(np.float32) / 255, (0, 0), 1.0)
    du, dv = cv2.Scharr(image, cv2.CV_32F, 1, 0) / 32, -cv2.Scharr(image, cv2.CV_32F, 0, 1) / 32
    products = np.stack([(du * du).sum(-1), (du * dv).sum(-1), (dv * dv).sum(-1)], -1)
    products = cv2.GaussianBlur(products, (0, 0), 1.5)
    height, width = frame.shape[:2]
    rows = np.clip(pixels.imag.astype(int), 0, height - 1)
    columns = np.clip(pixels.real.astype(int), 0, width - 1)
    a, b, c = products[rows, columns].T.astype(float)
    largest = 0.5 * (a + c) + np.sqrt(0.25 * (a - c) ** 2 + b**2)
    tensor = np.stack([np.stack([a, b], -1), np.stack([b, c], -1)], -2) / (largest + _EDGE**2)[:, None, None]
    return (1 - _GUESS) * tensor + _GUESS * np.eye(2)


@dataclass(frozen=True)
class RigidMotion:
    """x_t = exp(i angles_t) c + shifts_t; angles [T] unwrapped radians, shifts [T]."""

    angles: Float[np.ndarray, " T"]
    shifts: Complex[np.ndarray, " T"]

    @staticmethod
    def fit(seen: TrackedPoints, weights: np.ndarray | None = None) -> RigidMotion:
        """The rigid motion nearest to tracks: weighted Procrustes, then Gauss-Newton under the tensors."""
        weights = np.ones(len(seen)) if weights is None else weights
        share = weights * np.trace(seen.tensors, axis1=1, axis2=2)
        share = share / share.sum()
        center, centers = share @ seen.points, seen.tracks @ share
        cross = ((seen.tracks - centers[:, None]) * (seen.points - center).conj()) @ share
        turns = np.exp(1j * np.angle(cross))
        shifts = centers - turns * center
        tensors = seen.tensors * (weights / weights.sum())[:, None, None]
        total = tensors.sum(0)
        for _ in range(6):
            gap = seen.points + turns.conj()[:, None] * (shifts[:, None] - seen.tracks)  # [T, N], in the part's axes
            spin = _vectors(1j * (seen.points - gap))
            pulled = np.einsum("nij,tnj->tni", tensors, spin)
            normal = np.zeros((len(turns), 3, 3))
            normal[:, 0, 0] = (spin * pulled).sum((1, 2))
            normal[:, 0, 1:] = normal[:, 1:, 0] = pulled.sum(1)
            normal[:, 1:, 1:] = total
            force = np.einsum("nij,tnj->tni", tensors, _vectors(gap))
            gradient = np.concatenate([(spin * force).sum((1, 2))[:, None], force.sum(1)], 1)
            ridge = 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
            step = -np.linalg.solve(normal + ridge, gradient[..., None])[..., 0]
            # a turn by e about the axes' origin moves shifts' body coordinates nowhere: s' = E (E^* s + d)
            shifts = shifts + turns * (step[:, 1] + 1j * step[:, 2])
            turns = turns * np.exp(1j * np.clip(step[:, 0], -0.5, 0.5))
        return RigidMotion(np.unwrap(np.angle(turns)), shifts)

    @property
    def turns(self) -> Complex[np.ndarray, " T"]:
        return np.exp(1j * self.angles)

    def carry(self, points: Complex[np.ndarray, " n"]) -> Complex[np.ndarray, "T n"]:
        return self.turns[:, None] * points + self.shifts[:, None]

    def seen_from(self, other: RigidMotion) -> RigidMotion:
        """This motion in the axes that `other` carries along."""
        back = other.turns.conj()
        return RigidMotion(self.angles - other.angles, back * (self.shifts - other.shifts))

    def errors(self, seen: TrackedPoints) -> Float[np.ndarray, " N"]:
        """How far from its track every point is carried as far as the picture can tell, root mean square over time."""
        gap = _vectors(seen.points + self.turns.conj()[:, None] * (self.shifts[:, None] - seen.tracks))
        return np.sqrt(np.einsum("tni,nij,tnj->n", gap, seen.tensors, gap) / len(self.angles))


def _vectors(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1)


@dataclass(frozen=True)
class RigidParts:
    """A partition of points into parts that move rigidly.

    labels [N]; motions, one per part; errors [N]: root mean square distance of a point's track from its part's, pixels.
    """

    labels: Int[np.ndarray, " N"]
    motions: list[RigidMotion]
    errors: Float[np.ndarray, " N"]

    def typical_error(self) -> float:
        """Root mean square over the better nineteen in twenty of the points, pixels."""
        kept = np.sort(self.errors)[: max(1, int(0.95 * len(self.errors)))]
        return float(np.sqrt(np.square(kept).mean()))

    def carried(self, points: Complex[np.ndarray, " N"]) -> Complex[np.ndarray, "T N"]:
        """Every point carried by its part."""
        result = np.zeros((len(self.motions[0].angles), len(points)), complex)
        for k, motion in enumerate(self.motions):
            result[:, self.labels == k] = motion.carry(points[self.labels == k])
        return result


def _settle(seen: TrackedPoints, labels: np.ndarray, count: int) -> RigidParts:
    """Points go to the part that explains them best, parts to the motion that their points have, in turn."""
    errors = np.zeros((len(seen), count))
    motions: list[RigidMotion] = []
    some = seen.at(np.unique(np.linspace(0, len(seen.tracks) - 1, _FRAMES).astype(int)))
    for _ in range(15):
        motions = [RigidMotion.fit(some[labels == k].thinned(_ENOUGH)) for k in range(count)]
        errors = np.stack([motion.errors(some) for motion in motions], 1)
        new = errors.argmin(1)
        if (np.bincount(new, minlength=count) < 8).any() or (new == labels).mean() > 0.998:
            break
        labels = new
    motions = [RigidMotion.fit(seen[labels == k].thinned(_ENOUGH)) for k in range(count)]
    errors = np.stack([motion.errors(seen) for motion in motions], 1)
    return RigidParts(labels, motions, errors[np.arange(len(seen)), labels])


def partitions(seen: TrackedPoints, most: int) -> Iterator[RigidParts]:
    """Partitions into 1, 2, ... `most` rigid parts; each new part grows from where the last ones explain least."""
    parts = _settle(seen, np.zeros(len(seen), int), 1)
    yield parts
    for count in range(2, most + 1):
        worst = seen.points[parts.errors.argmax()]
        seed = np.argsort(np.abs(seen.points - worst))[: max(8, int(_SEED * len(seen)))]
        labels = parts.labels.copy()
        labels[seed] = count - 1
        if (np.bincount(labels, minlength=count) < 8).any():
            return
        parts = _settle(seen, labels, count)
        yield parts


def given_to_parents(
    seen: TrackedPoints,
    parts: RigidParts,
    parents: list[int],
    anchors: list[complex],
    colors_at: Callable[[np.ndarray], np.ndarray],
) -> RigidParts:
    """The same parts, but what lies around a joint and looks alike as a piece of either belongs to the parent.

    A plain disk is such a thing: weights sit at the ends of arms, and further arms hang on them.
    anchors: canonical points of the joints; colors_at: colors [n, 3] of the reference frame at complex places [n].
    """
    labels = parts.labels.copy()
    for part, parent in enumerate(parents):
        own = np.flatnonzero(parts.labels == part)
        if parent < 0 or not len(own):
            continue
        points = seen.points[own]
        # where the parent would put them, in the axes of the part
        moved = parts.motions[parent].seen_from(parts.motions[part]).carry(points)
        some = moved[np.unique(np.linspace(0, len(moved) - 1, 16).astype(int))]
        change = np.mean([np.abs(colors_at(places) - colors_at(points)).max(-1) for places in some], axis=0)
        order = np.abs(points - anchors[part]).argsort()
        share = np.cumsum(change[order] < _ALIKE) / np.arange(1, len(own) + 1)
        shared = order[: int(np.flatnonzero(share >= 0.8).max(initial=-1)) + 1]
        if len(shared) < 0.7 * len(own):  # a part of which little would be left has nothing to give
            labels[own[shared]] = parent
    return RigidParts(labels, parts.motions, parts.errors)


def pruned(seen: TrackedPoints, parts: RigidParts, tolerance: float) -> RigidParts:
    """The same without parts that the others explain as well, `tolerance` pixels: growing parts leaves crumbs."""
    while len(parts.motions) > 1:
        count = len(parts.motions)
        errors = np.stack([motion.errors(seen) for motion in parts.motions], 1)
        fewer = []
        for k in range(count):
            others = [j for j in range(count) if j != k]
            labels = np.where(parts.labels == k, errors[:, others].argmin(1), np.searchsorted(others, parts.labels))
            fewer.append(_settle(seen, labels, count - 1))
        best = min(fewer, key=RigidParts.typical_error)
        if best.typical_error() >= tolerance:
            break
        parts = best
    return parts
