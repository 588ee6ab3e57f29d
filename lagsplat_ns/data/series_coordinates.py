"""From measured states to generalized coordinates: as they are, as angles of a chain, or leading directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.data.errors import data_error
from lagsplat_ns.data.series import Series

__all__ = ["AngleKind", "Coordinates", "coordinates_of"]

AngleKind = Literal["none", "absolute", "relative"]
MOST_COORDINATES = 4


@dataclass(frozen=True)
class Coordinates:
    """Generalized coordinates q [T, d] of a series, and what they are. is_chain: absolute angles of linked links."""

    q: Float64[np.ndarray, "T d"]
    names: tuple[str, ...]
    is_chain: bool
    note: str


def coordinates_of(
    series: Series, num_train: int, *, angles: AngleKind, is_points: bool, latent_dim: int | None
) -> Coordinates:
    """The coordinates of a series.

    angles: states are angles in radians of links that hang on each other, each against a fixed direction or against
    the link before; is_points: states are x, y of the links' ends instead, from the first link on; latent_dim: that
    many leading directions of the training rows.

    Raises: DataError.
    """
    states, names = series.states, series.state_names
    if is_points:
        if states.shape[1] % 2:
            raise data_error(
                f"Points must be pairs of x and y, but there are {states.shape[1]} columns ({', '.join(names)}).",
                "Name them in pairs, from the fixed end on: --state-columns x1 y1 x2 y2",
            )
        q, radii = _chain_angles(states, num_train)
        listed = ", ".join(f"{radius:.4g}" for radius in radii)
        return Coordinates(
            q, tuple(f"angle_{k + 1}" for k in range(q.shape[1])), True,
            f"Absolute angles of links that end at {', '.join(names)}; lengths {listed}.",
        )  # fmt: skip
    if angles != "none":
        q = np.cumsum(states, axis=1) if angles == "relative" else states
        return Coordinates(np.unwrap(q, axis=0), names, True, "Angles of a planar chain, in radians.")
    if latent_dim is not None and latent_dim < states.shape[1]:
        return _principal(states, num_train, latent_dim)
    if states.shape[1] > MOST_COORDINATES:
        raise data_error(
            f"There must be at most {MOST_COORDINATES} coordinates, but there are {states.shape[1]} states "
            f"({', '.join(names)}).",
            "Name fewer --state-columns, or reduce them: --latent-dim 2",
        )
    return Coordinates(states, names, False, "States as they are.")


def _chain_angles(states: np.ndarray, num_train: int) -> tuple[np.ndarray, list[float]]:
    """Angles of the links from the fixed end on, and their lengths. The pivot is the center of the first end's path."""
    x, y = states[:num_train, 0], states[:num_train, 1]
    design = np.column_stack([2 * x, 2 * y, np.ones_like(x)])
    pivot = np.linalg.lstsq(design, x**2 + y**2, rcond=None)[0][:2]
    before, angles, radii = np.broadcast_to(pivot, (len(states), 2)), [], []
    for k in range(0, states.shape[1], 2):
        end = states[:, k : k + 2]
        link = end - before
        angles.append(np.unwrap(np.arctan2(link[:, 1], link[:, 0])))
        radii.append(float(np.hypot(*link.T).mean()))
        before = end
    return np.stack(angles, axis=1), radii


def _principal(states: np.ndarray, num_train: int, latent_dim: int) -> Coordinates:
    train = states[:num_train]
    center = train.mean(0)
    _, sizes, rows = np.linalg.svd(train - center, full_matrices=False)
    share = float((sizes[:latent_dim] ** 2).sum() / (sizes**2).sum())
    q = (states - center) @ rows[:latent_dim].T
    return Coordinates(
        q / np.ptp(q[:num_train, 0]), tuple(f"direction_{k + 1}" for k in range(latent_dim)), False,
        f"{latent_dim} leading direction(s) of {states.shape[1]} states: {share:.2%} of their variance.",
    )  # fmt: skip
