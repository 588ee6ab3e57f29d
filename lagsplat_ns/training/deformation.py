"""Motion of everything that moves, before anything is known about its structure: a deformation graph on the pictures.

Nodes sit on the moving pixels of a reference frame and carry rigid motions; pixels follow their nearest nodes, nearest
along the thing and not across gaps. Frame after frame the nodes' motions are aligned to the colors of the reference, so
that errors do not add up along the clip, while neighbors are held to move rigidly together unless the picture insists.
Source: Sumner, Schmid and Pauly, "Embedded Deformation for Shape Manipulation", 2007; Lucas and Kanade 1981.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Complex, Float, UInt8
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

_MAX_POINTS = 1200
_MAX_NODES = 24
_SPACING_PX = 7.0
"""least distance of neighboring nodes along the thing"""
_COLOR_NOISE = 0.06
"""color difference at which a pixel's say is halved"""
_STRETCH_PX = 1.0
"""break of rigidity between neighbors at which their bond's say is halved"""
_BOND = 0.1
"""say of one squared pixel of a neighbor's break against squared color differences, per point of a node"""


@dataclass(frozen=True)
class Deformation:
    """Rigid motions of the nodes of one thing or several through a clip, and the pixels that follow them.

    Plane vectors are complex pixels u + i v (origin top left, centers at +0.5). Node k carries a point c to
    exp(i angle) (c - node) + node + shift. points [N] moving pixels of frame `reference`; skinning [N, K], rows sum
    to one; nodes [K]; angles, shifts [T, K]; misfit [T]: mean color difference of the carried points.
    """

    reference: int
    points: Complex[np.ndarray, " N"]
    nodes: Complex[np.ndarray, " K"]
    skinning: Float[np.ndarray, "N K"]
    angles: Float[np.ndarray, "T K"]
    shifts: Complex[np.ndarray, "T K"]
    misfit: Float[np.ndarray, " T"]
    component: np.ndarray
    """[N] which connected thing of the reference frame a point belongs to"""
    spacing: float
    """distance of neighboring nodes along the thing, pixels"""

    def tracks(self) -> Complex[np.ndarray, "T N"]:
        """Where every point is in every frame."""
        return _carried(self.points - self.nodes[:, None], self.nodes, self.skinning, self.angles, self.shifts)


def _carried(
    arms: np.ndarray, nodes: np.ndarray, skinning: np.ndarray, angles: np.ndarray, shifts: np.ndarray
) -> np.ndarray:
    """sum_k w_ik (exp(i angle_k) (c_i - n_k) + n_k + t_k); arms [K, N], angles and shifts [*, K]; [*, N]."""
    weighted = skinning * arms.T  # [N, K]
    return np.exp(1j * angles) @ weighted.T + (nodes + shifts) @ skinning.T


@dataclass(frozen=True)
class _Graph:
    points: np.ndarray
    nodes: np.ndarray
    skinning: np.ndarray
    bonds: np.ndarray
    component: np.ndarray
    spacing: float


def _pixel_graph(rows: np.ndarray, columns: np.ndarray, reach: float) -> coo_matrix:
    """Distances between pixels that touch, up to `reach` apart so that thinned pixels still do."""
    from scipy.spatial import cKDTree

    places = np.stack([columns, rows], 1).astype(float)
    pairs = cKDTree(places).query_pairs(reach, output_type="ndarray")
    lengths = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    size = (len(rows), len(rows))
    return coo_matrix((lengths, (pairs[:, 0], pairs[:, 1])), shape=size)


def _build_graph(mask: Bool[np.ndarray, "H W"]) -> _Graph:
    stride = max(1, int(np.sqrt(mask.sum() / 2500)))
    grid = np.zeros_like(mask)
    grid[::stride, ::stride] = True
    rows, columns = np.nonzero(mask & grid)
    distances = _pixel_graph(rows, columns, 1.5 * stride + 0.1)
    chosen = [0]
    reach = dijkstra(distances, directed=False, indices=0)
    chosen[0] = int(np.where(np.isfinite(reach), reach, -1).argmax())  # an end of the thing
    closest = dijkstra(distances, directed=False, indices=chosen[0])
    all_distances = [closest]
    spacing = _SPACING_PX
    while len(chosen) < _MAX_NODES:
        far = np.where(np.isfinite(closest), closest, 1e6)
        best = int(far.argmax())
        if far[best] < _SPACING_PX:
            break
        spacing = min(float(far[best]), 1e5)
        chosen.append(best)
        all_distances.append(dijkstra(distances, directed=False, indices=best))
        closest = np.minimum(closest, all_distances[-1])
    geodesic = np.stack(all_distances, 1)  # [pixels, K]
    spacing = float(np.clip(spacing, _SPACING_PX, 60.0))
    pick = np.random.default_rng(0).permutation(len(rows))[:_MAX_POINTS]
    order = np.argsort(geodesic[pick], axis=1)
    weights = np.exp(-0.5 * (geodesic[pick] / (0.6 * spacing)) ** 2) + 1e-9 * np.isfinite(geodesic[pick])
    rank = np.argsort(order, axis=1)
    weights = np.where(rank < 4, weights, 0.0)
    weights /= weights.sum(1, keepdims=True)
    between = geodesic[chosen]
    bonds = {
        (min(a, b), max(a, b))
        for a in range(len(chosen))
        for b in np.argsort(between[a])[1:5].tolist()
        if np.isfinite(between[a, b]) and between[a, b] < 2.6 * spacing
    }
    places = columns + 0.5 + 1j * (rows + 0.5)
    component = np.zeros(len(pick), int)
    labels = cv2.connectedComponents(cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)))[1]
    component[:] = labels[rows[pick], columns[pick]]
    return _Graph(
        places[pick], places[chosen], weights, np.array(sorted(bonds), int).reshape(-1, 2), component, spacing
    )


def _blurred(frame: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A blurred picture with its derivatives along u and v."""
    image = cv2.GaussianBlur(frame.astype(np.float32) / 255, (0, 0), sigma)
    return image, cv2.Scharr(image, cv2.CV_32F, 1, 0) / 32, cv2.Scharr(image, cv2.CV_32F, 0, 1) / 32


def sample(image: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Bilinear samples [N, C] of a picture at complex pixels [N]; borders are replicated."""
    u, v = (places.real - 0.5).astype(np.float32), (places.imag - 0.5).astype(np.float32)
    out = cv2.remap(image, u[:, None], v[:, None], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return out.reshape(len(places), -1)


class _Aligner:
    """Gauss-Newton on the motions of all nodes for one frame at a time."""

    def __init__(self, graph: _Graph, frame: np.ndarray) -> None:
        self.graph, self.arms = graph, graph.points - graph.nodes[:, None]
        self.colors = {sigma: sample(_blurred(frame, sigma)[0], graph.points) for sigma in (3.0, 1.5, 0.7)}
        self.num_nodes = len(graph.nodes)
        self.stiffness = _BOND * len(graph.points) / self.num_nodes

    def place(self, angles: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        return _carried(self.arms, self.graph.nodes, self.graph.skinning, angles, shifts)

    def _breaks(self, angles: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far each bond's ends are from moving rigidly together [E, 2], and the arm of the turning node [E, 2]."""
        nodes, (a, b) = self.graph.nodes, self.graph.bonds.T
        ends = []
        arms = []
        for here, there in ((a, b), (b, a)):
            arm = np.exp(1j * angles[here]) * (nodes[there] - nodes[here])
            ends.append(arm + nodes[here] + shifts[here] - nodes[there] - shifts[there])
            arms.append(arm)
        return np.stack(ends, 1), np.stack(arms, 1)

    def cost(self, pictures: tuple, sigma: float, angles: np.ndarray, shifts: np.ndarray) -> float:
        residual = sample(pictures[0], self.place(angles, shifts)) - self.colors[sigma]
        size = np.square(residual).sum(1)
        data = _COLOR_NOISE**2 * np.log1p(size / _COLOR_NOISE**2).sum()
        if not len(self.graph.bonds):
            return float(data)
        broken = np.abs(self._breaks(angles, shifts)[0]) ** 2
        return float(data + self.stiffness * _STRETCH_PX**2 * _COLOR_NOISE**2 * np.log1p(broken / _STRETCH_PX**2).sum())

    def align(
        self, pictures: tuple, sigma: float, angles: np.ndarray, shifts: np.ndarray, iterations: int
    ) -> tuple[np.ndarray, np.ndarray]:
        k, graph = self.num_nodes, self.graph
        start = np.concatenate([angles, shifts.real, shifts.imag])
        prior = np.concatenate([np.full(k, 30.0), np.full(2 * k, 1.0)]) * 1e-3 * len(graph.points) / k * 0.02
        for _ in range(iterations):
            turns = np.exp(1j * angles)
            placed = self.place(angles, shifts)
            residual = sample(pictures[0], placed) - self.colors[sigma]
            du, dv = sample(pictures[1], placed), sample(pictures[2], placed)
            weight = 1.0 / (1.0 + np.square(residual).sum(1) / _COLOR_NOISE**2)
            spin = 1j * turns * self.arms.T * graph.skinning  # d place / d angle [N, K]
            jac = np.concatenate(
                [
                    du[:, :, None] * spin.real[:, None] + dv[:, :, None] * spin.imag[:, None],
                    du[:, :, None] * graph.skinning[:, None],
                    dv[:, :, None] * graph.skinning[:, None],
                ],
                axis=2,
            )
            root = np.sqrt(weight)[:, None]
            flat = (jac * root[..., None]).reshape(-1, 3 * k)
            normal, gradient = flat.T @ flat, flat.T @ (residual * root).ravel()
            if len(graph.bonds):
                self._add_bonds(normal, gradient, angles, shifts)
            state = np.concatenate([angles, shifts.real, shifts.imag])
            normal[np.diag_indices_from(normal)] += prior
            step = np.linalg.solve(normal, gradient + prior * (state - start))
            largest = max(np.abs(step[k:]).max() / 4.0, np.abs(step[:k]).max() / 0.3, 1.0)
            state = state - step / largest
            angles, shifts = state[:k], state[k : 2 * k] + 1j * state[2 * k :]
            if np.abs(step[k:]).max() < 5e-3:
                break
        return angles, shifts

    def _add_bonds(self, normal: np.ndarray, gradient: np.ndarray, angles: np.ndarray, shifts: np.ndarray) -> None:
        k, (a, b) = self.num_nodes, self.graph.bonds.T
        broken, arms = self._breaks(angles, shifts)
        weight = self.stiffness * _COLOR_NOISE**2 / (1.0 + np.abs(broken) ** 2 / _STRETCH_PX**2)
        count = len(a)
        for side, (here, there) in enumerate(((a, b), (b, a))):
            rows = np.zeros((2 * count, 3 * k))
            spin, edge = 1j * arms[:, side], np.arange(count)
            rows[edge, here], rows[count + edge, here] = spin.real, spin.imag
            rows[edge, k + here], rows[edge, k + there] = 1.0, -1.0
            rows[count + edge, 2 * k + here], rows[count + edge, 2 * k + there] = 1.0, -1.0
            w = np.tile(weight[:, side], 2)
            values = np.concatenate([broken[:, side].real, broken[:, side].imag])
            normal += (rows * w[:, None]).T @ rows
            gradient += rows.T @ (w * values)

    def predicted(self, flow: np.ndarray, angles: np.ndarray, shifts: np.ndarray, backwards: bool) -> tuple:
        """Motions one frame further along the optical flow: a weighted rigid fit for every node."""
        placed = self.place(angles, shifts)
        moved = sample(flow, placed) @ np.array([1.0, 1j])
        if backwards:  # the forward flow, looked up where the points came from
            moved = -(sample(flow, placed - moved) @ np.array([1.0, 1j]))
        w = self.graph.skinning / self.graph.skinning.sum(0)
        center, target = placed @ w, (placed + moved) @ w
        cross = ((placed[:, None] - center).conj() * (placed[:, None] + moved[:, None] - target) * w).sum(0)
        turn = np.angle(cross + 1e-9)
        here = self.graph.nodes + shifts
        there = np.exp(1j * turn) * (here - center) + target
        return angles + turn, there - self.graph.nodes


def follow(
    frames: UInt8[np.ndarray, "T H W 3"],
    mask: Bool[np.ndarray, "H W"],
    flow: Float[np.ndarray, "S H W 2"],
    reference: int,
) -> Deformation:
    """Follow the moving pixels of one frame through the clip, forward and backward."""
    graph = _build_graph(mask)
    aligner = _Aligner(graph, frames[reference])
    num_frames, k = len(frames), len(graph.nodes)
    angles, shifts = np.zeros((num_frames, k)), np.zeros((num_frames, k), complex)
    misfit = np.zeros(num_frames)
    for direction in (1, -1):
        t = reference
        while 0 <= t + direction < num_frames:
            field = flow[t if direction > 0 else t - 1].astype(np.float32)
            guesses = [aligner.predicted(field, angles[t], shifts[t], direction < 0)]
            if abs(t - reference) >= 1:
                before = t - direction
                guesses.append((2 * angles[t] - angles[before], 2 * shifts[t] - shifts[before]))
            t += direction
            pictures = {sigma: _blurred(frames[t], sigma) for sigma in (3.0, 1.5, 0.7)}
            costs = [aligner.cost(pictures[1.5], 1.5, *guess) for guess in guesses]
            state = guesses[int(np.argmin(costs))]
            for sigma, iterations in ((3.0, 3), (1.5, 5), (0.7, 5)):
                state = aligner.align(pictures[sigma], sigma, *state, iterations)
            angles[t], shifts[t] = state
            residual = sample(pictures[0.7][0], aligner.place(*state)) - aligner.colors[0.7]
            misfit[t] = np.abs(residual).mean()
    return Deformation(
        reference, graph.points, graph.nodes, graph.skinning, angles, shifts, misfit, graph.component, graph.spacing
    )
