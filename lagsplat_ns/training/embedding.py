"""From free motions of the bases to latent coordinates: how many, which, and the motion as a function of them.

Tracks are linear in the motion vector m_t, so all geometry of the tracks lives in 4 P numbers per frame under the inner
product G = sum_i w_i A_i^T A_i: principal coordinates, residuals in scene units and arc length are exact and cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from lagsplat_ns.gaussians.bases import MotionBases, motion_gram, motion_vector
from lagsplat_ns.gaussians.monomials import Monomials
from lagsplat_ns.gaussians.scene import LatentScene

MAX_LATENT_DIM = 4
_DEGREE = {1: 5, 2: 3, 3: 2, 4: 2}
"""highest polynomial degree of the motions for each number of latent coordinates"""


@dataclass(frozen=True)
class Embedding:
    """Latent coordinates of the frames and the motion of the bases as a function of them.

    q [T, d] has unit standard deviation along its first axis; residual and spread: root mean square over the tracks,
    scene units, of what the map leaves out and of the motion itself.
    """

    q: Float[np.ndarray, "T d"]
    bases: MotionBases
    residual: float
    spread: float

    @property
    def latent_dim(self) -> int:
        return self.q.shape[1]

    @property
    def degree(self) -> int:
        return self.bases.monomials.degree

    @property
    def has_pivots(self) -> bool:
        return bool(self.bases.has_pivots)


@dataclass(frozen=True)
class Motions:
    """Free motions of all frames with the geometry of their tracks, double precision.

    angles [T, P], translations [T, P, 2], gram [4 P, 4 P], origin [2].
    """

    angles: Float[np.ndarray, "T P"]
    translations: Float[np.ndarray, "T P 2"]
    gram: Float[np.ndarray, "P4 P4"]
    origin: Float[np.ndarray, " 2"]
    points: Float[np.ndarray, "K 2"] | None = None
    """some places on the moving thing in the reference pose"""

    @staticmethod
    def of(scene: LatentScene) -> Motions:
        with torch.no_grad():
            gram = motion_gram(scene.placements().double(), scene.mass_weights().double())
            angles, translations = scene.split_motions(scene.frame_motions.double().cpu())
            return Motions(
                np.unwrap(angles.numpy(), axis=0),
                translations.numpy(),
                gram.cpu().numpy(),
                scene.bases.origin.double().cpu().numpy(),
                scene.gauss_params["means"][: scene.num_moving : max(1, scene.num_moving // 100), 0::2]
                .double()
                .cpu()
                .numpy(),
            )

    def vectors(self) -> Float[np.ndarray, "T P4"]:
        return motion_vector(torch.from_numpy(self.angles), torch.from_numpy(self.translations)).numpy()

    def path_of(self, point: Float[np.ndarray, " 2"]) -> Float[np.ndarray, "T 2"]:
        """Where the first basis carries a point of the reference pose."""
        arm = point - self.origin
        c, s = np.cos(self.angles[:, 0]), np.sin(self.angles[:, 0])
        turned = np.stack([c * arm[0] - s * arm[1], s * arm[0] + c * arm[1]], 1)
        return turned + self.origin + self.translations[:, 0]

    def half_gram(self) -> Float[np.ndarray, "P4 P4"]:
        """G^(1/2): turns differences of motion vectors into tracks with Euclidean length."""
        values, vectors = np.linalg.eigh(self.gram)
        return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T

    def noise(self) -> float:
        """Root mean square trembling of the tracks from frame to frame, scene units: from third differences."""
        third = np.diff(self.vectors() @ self.half_gram(), n=3, axis=0)
        return float(np.sqrt(np.median(np.square(third).sum(1)) / 20.0)) if len(third) else 0.0

    def track_error(self, predicted: Float[np.ndarray, "T P4"], used: np.ndarray | None = None) -> float:
        """Root mean square distance between tracks under `predicted` motions and these, scene units."""
        gap = (predicted - self.vectors()) @ self.half_gram()
        squared = np.square(gap).sum(1)
        return float(np.sqrt(squared.mean() if used is None else squared[used].mean()))


def _robust_weights(residuals: np.ndarray) -> np.ndarray:
    scale = 3.0 * np.median(residuals) + 1e-12
    return 1.0 / (1.0 + (residuals / scale) ** 2)


def _fit_map(
    q: np.ndarray, targets: np.ndarray, degree: int, metric_root: np.ndarray, ridge: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Robust least squares of targets [T, 3 P] on monomials of q; residuals per frame in track units [T]."""
    basis = Monomials(q.shape[1], degree)
    phi = basis(torch.from_numpy(q)).numpy()
    penalty = np.diag(np.where(basis.exponents.sum(1).numpy() > 1, ridge * len(q), 1e-9))
    weights = np.ones(len(q))
    coefficients = np.zeros((phi.shape[1], targets.shape[1]))
    residuals = np.zeros(len(q))
    for _ in range(6):
        weighted = phi * weights[:, None]
        coefficients = np.linalg.solve(weighted.T @ phi + penalty, weighted.T @ targets)
        residuals = np.linalg.norm((phi @ coefficients - targets) @ metric_root, axis=1)
        weights = _robust_weights(residuals)
    return coefficients, residuals


def _tangent_root(motions: Motions) -> np.ndarray:
    """Maps small changes of (angles [P], translations [2 P]) to track lengths, at the middle of the motion."""
    num_bases = motions.angles.shape[1]
    mean_angle = motions.angles.mean(0)
    slope = np.zeros((4 * num_bases, 3 * num_bases))
    for p in range(num_bases):
        slope[4 * p, p], slope[4 * p + 1, p] = -np.sin(mean_angle[p]), np.cos(mean_angle[p])
        slope[4 * p + 2, num_bases + 2 * p] = slope[4 * p + 3, num_bases + 2 * p + 1] = 1.0
    values, vectors = np.linalg.eigh(slope.T @ motions.gram @ slope)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T


def principal_coordinates(motions: Motions, latent_dim: int) -> Float[np.ndarray, "T d"]:
    """Leading principal coordinates of the tracks, robust against single frames, first one of unit spread."""
    whitened = motions.vectors() @ motions.half_gram()
    weights = np.ones(len(whitened))
    for _ in range(4):
        center = (weights[:, None] * whitened).sum(0) / weights.sum()
        _, values, axes = np.linalg.svd((whitened - center) * np.sqrt(weights)[:, None], full_matrices=False)
        scores: np.ndarray = (whitened - center) @ axes[:latent_dim].T
        weights = _robust_weights(np.linalg.norm(whitened - center - scores @ axes[:latent_dim], axis=1))
    return np.asarray(scores / max(values[0] / np.sqrt(weights.sum()), 1e-12))


def _polynomial(motions: Motions, q: np.ndarray, degree: int) -> Embedding:
    num_frames, num_bases = motions.angles.shape
    targets = np.concatenate([motions.angles, motions.translations.reshape(num_frames, -1)], 1)
    coefficients, _ = _fit_map(q, targets, degree, _tangent_root(motions))
    bases = MotionBases(q.shape[1], num_bases, degree).double()
    with torch.no_grad():
        bases.angle_coefficients.copy_(torch.from_numpy(coefficients[:, :num_bases]))
        bases.translation_coefficients.copy_(torch.from_numpy(coefficients[:, num_bases:].reshape(-1, num_bases, 2)))
    return _finish(motions, q, bases)


def _finish(motions: Motions, q: np.ndarray, bases: MotionBases) -> Embedding:
    with torch.no_grad():
        bases.origin.copy_(torch.from_numpy(motions.origin))
        predicted = bases(torch.from_numpy(q)).numpy()
    vectors = motions.vectors()
    spread = motions.track_error(np.broadcast_to(np.median(vectors, axis=0), vectors.shape))
    gaps = np.linalg.norm((predicted - vectors) @ motions.half_gram(), axis=1)
    trimmed = np.sort(gaps)[: max(1, int(0.9 * len(gaps)))]  # hands and other visitors must not decide
    return Embedding(q, bases, float(np.sqrt(np.square(trimmed).mean())), spread)


def along_curve(motions: Motions) -> Embedding:
    """One coordinate: arc length along the principal curve of the tracks, so that the metric is constant."""
    start = principal_coordinates(motions, 1)
    first = _polynomial(motions, start, _DEGREE[1])
    grid = np.linspace(start.min(), start.max(), 500)
    with torch.no_grad():
        curve = first.bases(torch.from_numpy(grid[:, None])).numpy() @ motions.half_gram()
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    q = np.interp(start[:, 0], grid, length)
    q = (q - np.median(q)) / max(np.std(q), 1e-12)
    best = _polynomial(motions, q[:, None], _DEGREE[1])
    for degree in range(1, _DEGREE[1]):  # the stiffest curve that explains the tracks bends the gauge least
        candidate = _polynomial(motions, q[:, None], degree)
        if candidate.residual < 1.15 * best.residual + 5e-5:
            return candidate
    return best


def about_pivot(motions: Motions, max_residual: float) -> Embedding | None:
    """One rigid part that turns about a fixed point: the angle is q. None where no point stays at rest.

    The pivot is the center of the circle on which one point of the part moves, the point whose path is most circular.
    Its angle about the pivot is q: pictures determine it better than the turning of the part itself, which a ball that
    looks the same from all sides does not show at all.
    """
    if motions.angles.shape[1] != 1:
        return None
    points = motions.origin[None] if motions.points is None else motions.points
    paths = np.stack([motions.path_of(point) for point in points])
    lengths = np.linalg.norm(np.quantile(paths, 0.95, axis=1) - np.quantile(paths, 0.05, axis=1), axis=1)
    if lengths.max() < 4 * max_residual:
        return _about_own_center(motions, max_residual)
    best: tuple[float, np.ndarray, np.ndarray] | None = None
    for path in paths[lengths >= 0.5 * lengths.max()]:
        center, radius = _fit_circle(path)
        gap = np.abs(np.linalg.norm(path - center, axis=1) - radius)
        error = float(np.sqrt(np.square(np.sort(gap)[: int(0.9 * len(gap))]).mean()))
        if radius < 10 and (best is None or error < best[0]):
            best = (error, center, path)
    if best is None or best[0] > max_residual:
        return None
    _, center, path = best
    angle = np.unwrap(np.arctan2(*(path - center).T[::-1]))
    if np.ptp(angle) < 0.15:
        return None
    reference = int(np.argmin(np.abs(motions.angles[:, 0] - np.median(motions.angles[:, 0]))))
    return _pivoting(motions, center, angle - angle[reference] + motions.angles[reference, 0], best[0])


def _about_own_center(motions: Motions, max_residual: float) -> Embedding | None:
    """A wheel or fan: no net translation, angle as measured."""
    angle = motions.angles[:, 0]
    if np.ptp(angle) < 0.15:
        return None
    rotation = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    system = (np.eye(2) - rotation).reshape(-1, 2)
    arm = np.linalg.lstsq(system, motions.translations[:, 0].reshape(-1), rcond=None)[0]
    gap = np.linalg.norm((np.eye(2) - rotation) @ arm - motions.translations[:, 0], axis=1)
    error = float(np.sqrt(np.square(gap).mean()))
    return None if error > max_residual else _pivoting(motions, motions.origin + arm, angle, error)


def _pivoting(motions: Motions, pivot: np.ndarray, angle: np.ndarray, residual: float) -> Embedding:
    scale, middle = max(np.std(angle), 1e-12), np.median(angle)
    bases = MotionBases(1, 1, 1, has_pivots=True).double()
    with torch.no_grad():
        bases.angle_coefficients.copy_(torch.tensor([[middle], [scale]]))
        bases.pivots.copy_(torch.from_numpy(pivot[None]))
    return replace(_finish(motions, ((angle - middle) / scale)[:, None], bases), residual=residual)


def _fit_circle(path: np.ndarray) -> tuple[np.ndarray, float]:
    """Center and radius, robust algebraic fit (Kasa 1976, reweighted)."""
    weights = np.ones(len(path))
    center, radius = path.mean(0), 1.0
    for _ in range(8):
        system = np.concatenate([2 * path, np.ones((len(path), 1))], 1) * weights[:, None]
        solution = np.linalg.lstsq(system, np.square(path).sum(1) * weights, rcond=None)[0]
        center = solution[:2]
        radius = float(np.sqrt(max(solution[2] + center @ center, 1e-12)))
        weights = np.sqrt(_robust_weights(np.abs(np.linalg.norm(path - center, axis=1) - radius)))
    return center, radius


def embed(motions: Motions, latent_dim: int, pixel_size: float) -> Embedding:
    """The map for a given number of latent coordinates; one rigid part about a pivot takes its angle."""
    if latent_dim == 1:
        curve = along_curve(motions)
        turning = about_pivot(motions, max_residual=max(0.3 * pixel_size, 0.004 * curve.spread))
        return curve if turning is None else turning
    q = principal_coordinates(motions, latent_dim)
    best = _polynomial(motions, q, _DEGREE[latent_dim])
    linear = _polynomial(motions, q, 1)
    return linear if linear.residual < 1.15 * best.residual + 5e-5 else best


def candidates(motions: Motions, pixel_size: float) -> list[Embedding]:
    """Embeddings worth comparing, fewest coordinates first: those that reach the noise of the tracks, and one more.

    A candidate reaches it when its residual is below 0.7 px, 2.5 % of the motion's spread, or one and a half times the
    trembling of the tracks. A part on a circle about a fixed pivot needs no more than its angle: what its tracks leave
    over is a turning that its pictures do not show.
    """
    highest = min(MAX_LATENT_DIM, 3 * motions.angles.shape[1], max(1, len(motions.angles) // 8))
    enough = max(0.7 * pixel_size, 1.5 * motions.noise())
    found: list[Embedding] = []
    for latent_dim in range(1, highest + 1):
        candidate = embed(motions, latent_dim, pixel_size)
        if found and candidate.residual > 0.6 * found[-1].residual:
            continue  # one more coordinate explains little more
        found.append(candidate)
        if candidate.has_pivots or candidate.residual < max(enough, 0.025 * candidate.spread):
            break
    return found
