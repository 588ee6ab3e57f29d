"""The structure behind a motion: which parts there are, how they hang together, which coordinates move it.

Lengths are pixels with v pointing up (complex u - i v from the middle of the picture) until an embedding is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import cv2
import numpy as np
import torch
from jaxtyping import Complex, Float, UInt8

from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import motion_gram, placement
from lagsplat_ns.training.chains import Chain, find_chain
from lagsplat_ns.training.deformation import Deformation, sample
from lagsplat_ns.training.joints import WORLD, Joint, hang_together
from lagsplat_ns.training.rigid_parts import (
    RigidMotion,
    RigidParts,
    TrackedPoints,
    given_to_parents,
    partitions,
    pruned,
    structure_tensors,
)

_RIGID_PX = 0.5
"""how well rigid parts must explain the tracks, root mean square"""
_ONE_PART_PX, _ONE_PART = (0.35, 0.7), 0.02
"""the same for a single part: a share of its motion, within bounds"""
_MOST_PARTS = 4
_UNSEEN_PX = 0.25
"""motion below which a coordinate counts as nothing"""
_BENT_PX = 0.3
"""how well the modes of a chain must explain its tracks, beyond what the chain itself leaves"""
_SMOOTH_PX = 1.0
"""what a radian of bend between neighboring links costs, in pixels of misfit"""
_MOST_MODES = 4


@dataclass(frozen=True)
class Structure:
    """Parts tied into trees with joint coordinates phi, and the tracks that they explain.

    bases: m(phi) in pixels; phi [T, D]; skinning [N, P] of the tracked points [N]; tracks [T, N]; stiffness [D, D]:
    what squared coordinates cost per frame, px^2; is_modal: whether a few modes of phi are to be the coordinates.
    """

    bases: ArticulatedBases
    phi: Float[np.ndarray, "T D"]
    skinning: Float[np.ndarray, "N P"]
    points: Complex[np.ndarray, " N"]
    tracks: Complex[np.ndarray, "T N"]
    stiffness: Float[np.ndarray, "D D"]
    is_modal: bool
    description: str
    noise: float = 0.0
    """root mean square distance of the tracks from what was tracked, pixels"""

    @property
    def num_coordinates(self) -> int:
        return self.phi.shape[1]

    def is_one_turning_part(self) -> bool:
        """Whether this is a single rigid part that turns about a pivot, or moves freely."""
        return self.bases.num_bases == 1 and bool((self.bases.angle_rows != 0).any())

    @cached_property
    def placements(self) -> torch.Tensor:
        """[N, 2, 4 P]"""
        return placement(_plane(self.points), self.bases.origin, torch.from_numpy(self.skinning))

    @cached_property
    def gram(self) -> torch.Tensor:
        """[4 P, 4 P] of the tracked points, mass one in all."""
        return motion_gram(self.placements, torch.ones(len(self.points), dtype=torch.float64))

    @cached_property
    def moments(self) -> torch.Tensor:
        """[T, 4 P]: of the tracks about the origin."""
        arms = _plane(self.tracks) - self.bases.origin
        return torch.einsum("ncj,tnc->tj", self.placements, arms) / len(self.points)

    def residual(self, phi: np.ndarray | None = None) -> float:
        """Root mean square distance from the tracks, pixels, over the better nineteen in twenty of frames."""
        with torch.no_grad():
            motion = self.bases(torch.from_numpy(self.phi if phi is None else phi))
            gap = torch.einsum("ncj,tj->tnc", self.placements, motion) - (_plane(self.tracks) - self.bases.origin)
        squares = np.sort(gap.square().sum(-1).mean(1).numpy())
        return float(np.hypot(np.sqrt(squares[: max(1, int(0.95 * len(squares)))].mean()), self.noise))

    def normal_equations(self, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per frame the Hessian [T, D, D] and gradient [T, D] of half the squared misfit, px^2."""
        q = torch.from_numpy(phi)
        slope = self.bases.jacobian(q)  # [T, 4P, D]
        normal = slope.transpose(1, 2) @ self.gram @ slope
        gradient = ((self.bases(q) @ self.gram - self.moments)[:, None] @ slope)[:, 0]
        return normal.numpy() + self.stiffness, gradient.numpy() + phi @ self.stiffness


def _plane(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([values.real, values.imag], -1).astype(np.float64))


def fitted(structure: Structure, iterations: int = 12) -> Structure:
    """The same structure with the coordinates of every frame fitted to the tracks (Gauss-Newton)."""
    phi = structure.phi.copy()
    for _ in range(iterations):
        normal, gradient = structure.normal_equations(phi)
        ridge = 1e-6 * np.trace(normal, axis1=1, axis2=2).mean() * np.eye(phi.shape[1])
        step = np.linalg.solve(normal + ridge, gradient[..., None])[..., 0]
        phi -= step
        if np.abs(step).max() < 1e-7:
            break
    return replace(structure, phi=phi)


def tree_of_parts(seen: TrackedPoints, parts: RigidParts, joints: list[Joint]) -> Structure:
    """Rigid parts on their joints, coordinates the absolute angles and the slides."""
    motions = parts.motions
    order: list[int] = []
    while len(order) < len(joints):
        order += [k for k, j in enumerate(joints) if k not in order and (j.parent == WORLD or j.parent in order)]
    where = {part: row for row, part in enumerate(order)} | {WORLD: WORLD}
    total = sum(joint.num_coordinates for joint in joints)
    bases = ArticulatedBases(total, [where[joints[k].parent] for k in order]).double().requires_grad_(False)
    phi = np.zeros((len(seen.tracks), total))
    column = 0
    for row, part in enumerate(order):
        joint, motion = joints[part], motions[part]
        above = None if joint.parent == WORLD else where[joint.parent]
        relative = motion if above is None else motion.seen_from(motions[joint.parent])
        place = relative.turns * joint.anchor + relative.shifts - joint.anchor
        bases.anchors[row] = _plane(np.array(joint.anchor))
        if joint.kind in ("pivot", "free"):
            bases.angle_rows[row, column] = 1.0
            base = 0.0 if above is None else motions[joint.parent].angles
            phi[:, column] = motion.angles if joint.turn is None else joint.turn + base
            column += 1
        elif above is not None:
            bases.angle_rows[row] = bases.angle_rows[above]
        if joint.kind == "slide":
            bases.slide_rows[row, :, column] = _plane(np.array(joint.direction))
            phi[:, column] = (place * np.conj(joint.direction)).real
            column += 1
        elif joint.kind in ("carried", "free"):
            bases.slide_rows[row, :, column : column + 2] = torch.eye(2, dtype=torch.float64)
            phi[:, column : column + 2] = np.stack([place.real, place.imag], 1)
            column += 2
    skinning = (parts.labels[:, None] == np.array(order)).astype(float)
    names = ["the world" if joints[k].parent == WORLD else f"part {where[joints[k].parent] + 1}" for k in order]
    kinds = ", ".join(f"{joints[part].kind} on {name}" for part, name in zip(order, names, strict=True))
    return fitted(
        Structure(
            bases, phi, skinning, seen.points, parts.carried(seen.points), np.zeros((total, total)), False,
            f"{len(order)} rigid part(s): {kinds}", parts.typical_error(),
        )
    )  # fmt: skip


def bending_chain(seen: TrackedPoints, chain: Chain) -> Structure:
    """The links of a chain with their absolute angles as coordinates, and the place of a root that is not held."""
    count, free = chain.num_links, 0 if chain.has_fixed_root else 2
    total = count + free
    bases = ArticulatedBases(total, list(range(-1, count - 1))).double().requires_grad_(False)
    phi = np.zeros((len(seen.tracks), total))
    bases.anchors.copy_(_plane(chain.joints))
    bases.angle_rows[:, :count] = torch.eye(count, dtype=torch.float64)
    for k in range(count):
        phi[:, k] = RigidMotion.fit(seen, chain.skinning[:, k] + 1e-9).angles
    if free:
        bases.slide_rows[0, :, count:] = torch.eye(2, dtype=torch.float64)
        root = np.abs(seen.points - chain.joints[0]).argsort()[:20]
        moved = (seen.tracks[:, root] - seen.points[root]).mean(1)
        phi[:, count], phi[:, count + 1] = moved.real, moved.imag
    bend = np.diff(np.eye(count), axis=0)
    stiffness = np.zeros((total, total))
    stiffness[:count, :count] = _SMOOTH_PX**2 * bend.T @ bend
    held = "a held end" if chain.has_fixed_root else "a free end"
    return fitted(
        Structure(
            bases, phi, chain.skinning, seen.points, seen.tracks, stiffness, True,
            f"a bending chain of {count} links with {held}",
        )
    )  # fmt: skip


@dataclass(frozen=True)
class Modes:
    """Coordinates of a structure after reduction: phi = mean + directions q, q [T, d] of unit spread."""

    structure: Structure
    mean: Float[np.ndarray, " D"]
    directions: Float[np.ndarray, "D d"]
    q: Float[np.ndarray, "T d"]

    @property
    def num_coordinates(self) -> int:
        return self.q.shape[1]

    @property
    def phi(self) -> Float[np.ndarray, "T D"]:
        return self.mean + self.q @ self.directions.T

    @cached_property
    def residual(self) -> float:
        """Root mean square distance from the tracks, pixels."""
        return self.structure.residual(self.phi)

    def scaled(self) -> Modes:
        """The same with every q of unit spread about its median, of positive mean effect."""
        middle, spread = np.median(self.q, axis=0), np.maximum(self.q.std(0), 1e-12)
        return replace(
            self,
            mean=self.mean + self.directions @ middle,
            directions=self.directions * spread,
            q=(self.q - middle) / spread,
        )

    def refined(self, rounds: int = 6) -> Modes:
        """Mean, directions and q that explain the tracks best, in turn (Gauss-Newton on each)."""
        mean, directions, q = self.mean, self.directions, self.q
        for _ in range(rounds):
            for _ in range(2):
                normal, gradient = self.structure.normal_equations(mean + q @ directions.T)
                own = directions.T @ normal @ directions
                ridge = 1e-9 * np.trace(own, axis1=1, axis2=2).mean() * np.eye(q.shape[1])
                q = q - np.linalg.solve(own + ridge, (gradient @ directions)[..., None])[..., 0]
            normal, gradient = self.structure.normal_equations(mean + q @ directions.T)
            with_one = np.concatenate([np.ones((len(q), 1)), q], 1)
            size = normal.shape[1] * with_one.shape[1]
            hessian = np.einsum("ta,tb,tij->iajb", with_one, with_one, normal).reshape(size, size)
            force = np.einsum("ta,ti->ia", with_one, gradient).ravel()
            hessian += 1e-6 * np.trace(hessian) / size * np.eye(size)
            step = np.linalg.solve(hessian, force).reshape(normal.shape[1], -1)
            mean, directions = mean - step[:, 0], directions - step[:, 1:]
        return replace(self, mean=mean, directions=directions, q=q)


def modes_of(structure: Structure) -> list[Modes]:
    """Choices of the coordinates, fewest first: of a chain its leading modes, of rigid parts their joints.

    Modes are principal directions of the joint coordinates under the displacement that they cause.
    """
    mean = np.median(structure.phi, axis=0)
    effect = structure.normal_equations(mean[None].repeat(len(structure.phi), 0))[0][0]  # px^2 per squared coordinate
    root = np.linalg.cholesky(effect + 1e-12 * np.eye(len(effect)))
    whitened = (structure.phi - mean) @ root
    _, values, axes = np.linalg.svd(whitened, full_matrices=False)
    count = max(1, int((values / np.sqrt(len(whitened)) > _UNSEEN_PX).sum()))
    directions = np.linalg.solve(root.T, axes.T)

    def leading(d: int) -> Modes:
        start = Modes(structure, mean, directions[:, :d], (whitened @ axes.T)[:, :d])
        return start.refined().scaled()

    if not structure.is_modal:
        if count == structure.num_coordinates:
            return [Modes(structure, mean, np.eye(count), structure.phi - mean).scaled()]
        return [leading(count)]
    best = structure.residual()
    found = []
    for d in range(1, min(_MOST_MODES, count) + 1):
        found.append(leading(d))
        if found[-1].residual < float(np.hypot(best, _BENT_PX)):
            break
    return found


def find_structures(deformation: Deformation, frame: UInt8[np.ndarray, "H W 3"], area_px: float) -> list[Structure]:
    """Structures that may explain a deformation: rigid parts on joints, and a chain where it bends.

    frame: the reference frame; area_px: how many of its pixels move.
    """
    height, width = frame.shape[:2]
    middle = 0.5 * (width + 1j * height)
    seen = TrackedPoints(
        (deformation.points - middle).conj(),
        (deformation.tracks() - middle).conj(),
        structure_tensors(frame, deformation.points),
    )
    blurred = cv2.GaussianBlur(frame.astype(np.float32) / 255, (0, 0), 1.0)

    def colors_at(places: np.ndarray) -> np.ndarray:
        return sample(blurred, places.conj() + middle)

    found = []
    spread = float(np.sqrt(np.square(np.abs(seen.tracks - seen.tracks.mean(0))).mean()))
    one_part = float(np.clip(_ONE_PART * spread, *_ONE_PART_PX))
    for parts in partitions(seen, _MOST_PARTS):
        count = len(parts.motions)
        if parts.typical_error() < (one_part if count == 1 else _RIGID_PX) or count == _MOST_PARTS:
            parts = pruned(seen, parts, _RIGID_PX)
            own = [seen[parts.labels == k] for k in range(len(parts.motions))]
            joints = hang_together(parts.motions, own, float(max(width, height)))
            parents, anchors = [joint.parent for joint in joints], [joint.anchor for joint in joints]
            parts = given_to_parents(seen, parts, parents, anchors, colors_at)
            found.append(tree_of_parts(seen, parts, joints))
            break
    if len(found) == 1 and found[0].bases.num_bases == 1:
        return found
    is_one_thing = deformation.component.max() == deformation.component.min()
    chain = find_chain(seen.tracks, seen.points, area_px) if is_one_thing else None
    if chain is not None:
        found.append(bending_chain(seen, chain))
    return found
