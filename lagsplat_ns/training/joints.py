"""How rigid parts hang together: pivots, joints, slides, free parts, and the tree that explains their motions best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np

from lagsplat_ns.training.rigid_parts import RigidMotion, TrackedPoints

JointKind = Literal["pivot", "slide", "carried", "free"]

_NOISE_PX = 0.35
"""standard deviation of a part's measured place in a frame"""
_PRICE = 4.0
"""what one more coordinate must save in squared noise per frame"""
_DEGREES = {"pivot": 1, "slide": 1, "carried": 2, "free": 3}
WORLD = -1


@dataclass(frozen=True)
class Joint:
    """How one part hangs on another (or on the world, parent -1).

    anchor: canonical point of the joint, pixels; direction: unit vector of a slide in the parent's axes; residual:
    root mean square distance from what was measured, pixels. "carried": moves in the plane without turning.
    """

    kind: JointKind
    parent: int
    anchor: complex
    direction: complex
    residual: float
    turn: np.ndarray | None = None
    """[T] angle in the parent's axes where it was read off the place, because the part's own turn is not seen"""

    @property
    def num_coordinates(self) -> int:
        return _DEGREES[self.kind]

    @property
    def cost(self) -> float:
        return (self.residual / _NOISE_PX) ** 2 + _PRICE * self.num_coordinates


def _rms(values: np.ndarray) -> float:
    """Of the better nineteen in twenty."""
    squares = np.sort(np.square(np.abs(values)))
    return float(np.sqrt(squares[: max(1, int(0.95 * len(squares)))].mean()))


def _spin_error(motion: RigidMotion, seen: TrackedPoints) -> float:
    """How much of a part's turning is seen at all, pixels: 0 for a plain disk."""
    center = seen.points.mean()
    turn = np.exp(1j * (motion.angles - np.median(motion.angles)))
    turned = center + turn[:, None] * (seen.points - center)
    still = RigidMotion(np.zeros_like(motion.angles), np.zeros_like(motion.shifts))
    return float(np.sqrt(np.square(still.errors(TrackedPoints(seen.points, turned, seen.tensors))).mean()))


def _pivot(motion: RigidMotion, center: complex) -> tuple[complex, float]:
    """The point that stays, and how far it does not."""
    lever = motion.turns - 1
    weak = 1e-6 * len(lever)
    anchor = complex((weak * center - (lever.conj() * motion.shifts).sum()) / ((np.abs(lever) ** 2).sum() + weak))
    return anchor, _rms(lever * anchor + motion.shifts)


def fit_circle(path: np.ndarray) -> tuple[complex, float]:
    """Center and radius of the circle nearest to a path of complex points (Kasa 1976, robustly reweighted)."""
    weights = np.ones(len(path))
    middle = complex(path.mean())
    local = path - middle
    center, radius = 0j, 1.0
    for _ in range(8):
        system = np.stack([2 * local.real, 2 * local.imag, np.ones(len(local))], 1) * weights[:, None]
        solution = np.linalg.lstsq(system, np.square(np.abs(local)) * weights, rcond=None)[0]
        center = complex(solution[0], solution[1])
        radius = float(np.sqrt(max(solution[2] + abs(center) ** 2, 1e-12)))
        gap = np.abs(np.abs(local - center) - radius)
        weights = np.sqrt(1.0 / (1.0 + (gap / (3.0 * np.median(gap) + 1e-12)) ** 2))
    return center + middle, radius


def joints_between(motion: RigidMotion, seen: TrackedPoints, parent: int, picture_px: float) -> list[Joint]:
    """The joints that may explain a part's motion as seen from its parent, all kinds."""
    points = seen.points
    center = complex(points.mean())
    path = motion.turns * center + motion.shifts
    size = float(np.sqrt(np.square(np.abs(points - center)).mean()))
    spin = _spin_error(motion, seen)
    found = [Joint("free", parent, center, 1 + 0j, 0.0), Joint("carried", parent, center, 1 + 0j, spin)]
    anchor, residual = _pivot(motion, center)
    if float(np.std(motion.angles)) * size > _NOISE_PX:
        found.append(Joint("pivot", parent, anchor, 1 + 0j, residual))
    offsets = path - path.mean()
    covariance = np.cov(np.stack([offsets.real, offsets.imag]))
    _, axes = np.linalg.eigh(covariance)
    direction = complex(axes[0, 1], axes[1, 1])
    across = (offsets * np.conj(direction)).imag
    slide = Joint("slide", parent, center, direction, float(np.hypot(_rms(across), spin)))
    found.append(slide)
    middle, radius = fit_circle(path)
    arc = np.unwrap(np.angle((path - middle) / (center - middle))) if radius > 1e-6 else np.zeros(len(path))
    if radius < 4 * picture_px and spin < 1.0 and float(np.ptp(arc)) > 0.05:
        radial = float(np.hypot(_rms(np.abs(path - middle) - radius), spin))
        found.append(Joint("pivot", parent, middle, 1 + 0j, radial, arc))
    if slide.residual < 1.3 * min(j.residual for j in found if j.num_coordinates == 1) + 0.1:
        found = [j for j in found if j.kind != "pivot"]  # a straight line is a circle, too
    return found


def hang_together(motions: list[RigidMotion], seen: list[TrackedPoints], picture_px: float) -> list[Joint]:
    """The tree of joints of least cost: one joint per part, parents by index, -1 for the world.

    Source: minimum spanning arborescence, Edmonds 1967.
    """
    graph = nx.DiGraph()
    best: dict[tuple[int, int], Joint] = {}
    still = RigidMotion(np.zeros_like(motions[0].angles), np.zeros_like(motions[0].shifts))
    for child in range(len(motions)):
        for parent in range(WORLD, len(motions)):
            if parent == child:
                continue
            frame = still if parent == WORLD else motions[parent]
            options = joints_between(motions[child].seen_from(frame), seen[child], parent, picture_px)
            joint = min(options, key=lambda j: j.cost)
            best[parent, child] = joint
            # on equal terms things hang on the world
            graph.add_edge(parent, child, weight=joint.cost + (0.0 if parent == WORLD else 0.5))
    tree = nx.minimum_spanning_arborescence(graph)
    chosen = {child: best[parent, child] for parent, child in tree.edges}
    return [chosen[k] for k in range(len(motions))]
