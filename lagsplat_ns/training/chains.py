"""Things that bend, as chains of short links along their length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex, Float
from scipy.interpolate import UnivariateSpline
from scipy.sparse import csgraph, csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree

_LINK_PX = 8.0
_FEWEST_LINKS, _MOST_LINKS = 5, 12
_SLENDER = 3.5
"""length over width from which a thing counts as a chain"""
_STILL_PX = 1.0
"""a root that moves less than this is held by the world"""
_LINE_PX = 0.5
"""how far the center line may pass the middle of the thing"""


@dataclass(frozen=True)
class Chain:
    """Links along a slender thing, from the end that moves least.

    joints [K]: canonical points where each link begins; skinning [N, K]: blends of neighboring links, rows sum to one;
    has_fixed_root: whether the first joint stays where it is.
    """

    joints: Complex[np.ndarray, " K"]
    skinning: Float[np.ndarray, "N K"]
    has_fixed_root: bool

    @property
    def num_links(self) -> int:
        return len(self.joints)


def _neighbors(points: np.ndarray) -> csr_matrix:
    """Which points are close to each other."""
    places = np.stack([points.real, points.imag], 1)
    tree = cKDTree(places)
    reach = 3.0 * float(np.median(tree.query(places, 2)[0][:, 1]))
    pairs = tree.query_pairs(reach, output_type="ndarray")
    return csr_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(points), len(points)))


def _along(points: np.ndarray) -> np.ndarray:
    """A coordinate that grows along the thing from one end to the other, the same across it.

    Source: the slowest mode of the graph Laplacian, Fiedler 1973.
    """
    graph = _neighbors(points)
    _, labels = connected_components(graph, directed=False)
    main = labels == np.bincount(labels).argmax()
    laplacian = csgraph.laplacian((graph + graph.T)[main][:, main], normed=False)
    _, modes = eigsh(laplacian.tocsc(), k=2, sigma=-1e-6, which="LM", v0=np.ones(main.sum()))
    along = np.zeros(len(points))
    along[main] = modes[:, 1]
    if not main.all():  # specks: as their nearest point of the thing
        nearest = np.abs(points[~main][:, None] - points[main]).argmin(1)
        along[~main] = modes[nearest, 1]
    return along


def _center_line(points: np.ndarray, along: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Distance of every point along the center line [N], and the line at count + 1 even distances."""
    order = np.argsort(along)
    groups = np.array_split(order, max(3 * count, 24))
    rank = np.empty(len(points))
    rank[order] = np.arange(len(points)) / len(points)
    knots = np.array([rank[g].mean() for g in groups])
    spread = np.array([points[g].std() / np.sqrt(len(g)) for g in groups])  # of the middle of each group
    weights = 1.0 / np.hypot(spread, _LINE_PX)
    line, across = (
        UnivariateSpline(knots, [part(points[g]).mean() for g in groups], weights, k=3, s=len(groups))
        for part in (np.real, np.imag)
    )
    fine = np.linspace(0.0, 1.0, 400)
    path = np.asarray(line(fine)) + 1j * np.asarray(across(fine))
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(path)))])
    nearest = cKDTree(np.stack([path.real, path.imag], 1)).query(np.stack([points.real, points.imag], 1))[1]
    # the line's own ends are cut a little short by averaging: nearest points spread it to the whole thing
    even = np.interp(np.linspace(0.0, length[-1], count + 1), length, fine)
    return length[nearest], np.asarray(line(even)) + 1j * np.asarray(across(even))


def find_chain(tracks: Complex[np.ndarray, "T N"], points: Complex[np.ndarray, " N"], area_px: float) -> Chain | None:
    """The chain along a slender thing; None for a thing that is not slender.

    tracks [T, N] and points [N] in pixels, area_px: what the thing covers in the reference frame.
    """
    along = _along(points)
    rough, _ = _center_line(points, along, _FEWEST_LINKS)
    length = float(rough.max())
    if length <= 0 or length**2 / area_px < _SLENDER:
        return None
    wander = np.sqrt(np.square(np.abs(tracks - tracks.mean(0))).mean(0))  # how far each point moves about
    low, high = np.quantile(rough, (0.08, 0.92))
    if wander[rough >= high].mean() < wander[rough <= low].mean():
        along = -along
    count = int(np.clip(round(length / _LINK_PX), _FEWEST_LINKS, _MOST_LINKS))
    along, line = _center_line(points, along, count)
    joints, width = line[:-1], area_px / length
    held = _held_root(tracks, points, along, length / count, width)
    if held is not None:
        joints = np.concatenate([[held], joints[1:]])
    place = np.clip(along / length * count - 0.5, 0.0, count - 1.0)
    left = np.minimum(place.astype(int), count - 2)
    share = place - left
    skinning = np.zeros((len(points), count))
    rows = np.arange(len(points))
    skinning[rows, left], skinning[rows, left + 1] = 1.0 - share, share
    return Chain(joints, skinning, held is not None)


def _held_root(tracks: np.ndarray, points: np.ndarray, along: np.ndarray, link: float, width: float) -> complex | None:
    """The point near the first link that stays where it is while the link turns, or the root itself if it is still."""
    first = along < link
    if first.sum() < 8:
        return None
    center, centers = points[first].mean(), tracks[:, first].mean(1)
    turns = np.exp(1j * np.angle(((tracks[:, first] - centers[:, None]) * (points[first] - center).conj()).mean(1)))
    shifts = centers - turns * center
    end = points[along < 0.25 * link].mean() if (along < 0.25 * link).any() else center
    lever, weak = turns - 1, 1e-3 * len(turns)  # where nothing turns, the end itself
    anchor = (weak * end - (lever.conj() * shifts).sum()) / ((np.abs(lever) ** 2).sum() + weak)
    moved = lever * anchor + shifts
    is_near = abs(anchor - end) < 1.5 * link + width
    return complex(anchor) if is_near and np.sqrt(np.square(np.abs(moved)).mean()) < _STILL_PX else None
