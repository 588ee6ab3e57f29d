"""Which joints, groups and periods the coordinates of motion bases have."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lagsplat_ns.dynamics.structure import Structure
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import MotionBases

__all__ = ["structure_of_bases"]

_SAME = 1e-3


def structure_of_bases(bases: nn.Module) -> Structure:
    """The structure of coordinates that move parts of a tree, or motion bases of any other kind."""
    d = int(bases.latent_dim)  # type: ignore[arg-type]
    with torch.no_grad():
        if isinstance(bases, ArticulatedBases):
            return _of_tree(bases)
        periods = torch.full((d,), math.inf, dtype=torch.float64)
        if isinstance(bases, MotionBases) and d == 1 and bases.monomials.degree == 1 and bool(bases.has_pivots):
            periods[0] = _period(bases.angle_coefficients[1].double())
        return Structure(torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.long), periods)


def _period(rows: Tensor) -> float:
    """After how much of a coordinate all angles rows * q come round together; infinite if they never do."""
    rows = rows.abs()
    largest = float(rows.max()) if rows.numel() else 0.0
    if largest <= 0:
        return math.inf
    turning = rows[rows > _SAME * largest]
    smallest = float(turning.min())
    multiples = turning / smallest
    is_whole = bool(((multiples - multiples.round()).abs() < _SAME * multiples).all())
    return 2 * math.pi / smallest if is_whole else math.inf


def _of_tree(bases: ArticulatedBases) -> Structure:
    d, parents = bases.latent_dim, bases.parents.tolist()
    angles, slides = bases.angle_rows.double(), bases.slide_rows.double()
    rows: list[Tensor] = []
    group = list(range(d))  # coordinates that move a common tree are joined

    def top(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    roots: list[int] = []
    first_of_root: dict[int, int] = {}
    for p, parent in enumerate(parents):
        roots.append(p if parent < 0 else roots[parent])
        relative = angles[p] - (angles[parent] if parent >= 0 else 0.0)
        rows += [row for row in (relative, *slides[p]) if bool((row != 0).any())]
        moved = (angles[p] != 0) | (slides[p] != 0).any(0)
        for i in moved.nonzero()[:, 0].tolist():
            group[top(i)] = top(first_of_root.setdefault(roots[p], i))
    tops = [top(i) for i in range(d)]
    groups = torch.tensor([sorted(set(tops)).index(t) for t in tops])
    periods = torch.full((d,), math.inf, dtype=torch.float64)
    for i in range(d):
        if not bool((slides[:, :, i] != 0).any()):
            periods[i] = _period(angles[:, i])
    return Structure(_joint_rows(rows, d), groups, periods)


def _joint_rows(rows: list[Tensor], d: int) -> Tensor:
    """The rates of joints themselves where there are d independent ones, else a square root of their sum of squares."""
    unit = torch.eye(d, dtype=torch.float64)
    if not rows:
        return unit
    stacked = torch.stack(rows)
    if stacked.shape[0] == d and float(torch.linalg.cond(stacked)) < 1e6:
        return stacked
    square = stacked.T @ stacked
    size = float(square.diagonal().mean())
    return torch.linalg.cholesky(square + 1e-9 * size * unit).T.contiguous()
