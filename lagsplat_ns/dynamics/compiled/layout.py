"""The numbers of a batch of mechanisms as three arrays, and where everything lies in them.

S parameter vectors, d coordinates, m inputs; K monomials, J angles, R features, M motion numbers (those that the gram
matrix is about: the features themselves where these are fewer), T terms of the potential, H harmonics, B blocks of the
input map. Kernels work on eight states at once: their memory is a flat array of rows of eight numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lagsplat_ns.dynamics.compiled import places

__all__ = ["KernelModel", "build_model"]

NUM_STAGES = 7  # of the integrator with most of them


@dataclass(frozen=True)
class KernelModel:
    """What kernels read: layout [.] int64, shared [.] float64, vectors [S, N] float64."""

    layout: np.ndarray
    shared: np.ndarray
    vectors: np.ndarray

    def size(self, place: int) -> int:
        return int(self.layout[place])


def build_model(values: Mapping[str, Any]) -> KernelModel:
    """The arrays of named numbers.

    Shared ones: exponents [K, d], angles [J, K], features [R, 3], map [M, R] or [0, 0], degree, ridge, is_constant,
    has_weight, mass_scale, center [d], inverse_scale [d], inverse_clip, terms [T, 4], highest, harmonic_axes [H],
    harmonic_rates [H], has_speed, slow_square, same_group [d, d], input_center [d], input_scale [d] (its inverse). Per
    vector, with a leading axis S: mass [d, d], gram [M, M], weight [M], stiffness [d, d], weights [T], harmonics
    [H, 2], rates [3], extra [d, d], inputs [B, d, m].
    """
    d, k = values["exponents"].shape[1], values["exponents"].shape[0]
    j, r, m = values["angles"].shape[0], values["features"].shape[0], values["gram"].shape[-1]
    layout = np.zeros(places.COUNT, np.int64)

    def put(name: str, value: int) -> None:
        layout[getattr(places, name)] = value

    for name, value in zip(("D", "K", "J", "R", "M"), (d, k, j, r, m)):
        put(name, value)
    put("T", len(values["terms"]))
    put("H", len(values["harmonic_axes"]))
    put("BLOCKS", values["inputs"].shape[1])
    put("NUM_INPUTS", values["inputs"].shape[3])
    for name in ("is_constant", "has_weight", "has_speed", "degree", "highest"):
        put(name.upper(), int(values[name]))
    put("HAS_MAP", int(values["map"].size > 0))
    tables, place = [], places.COUNT
    for name in ("exponents", "features", "terms", "harmonic_axes"):
        put(name.upper(), place)
        tables.append(np.asarray(values[name], np.int64).ravel())
        place += tables[-1].size
    shared, place = [], 0
    for name in (
        *("ridge", "mass_scale", "inverse_clip", "slow_square", "angles", "map", "center", "inverse_scale"),
        *("harmonic_rates", "same_group", "input_center", "input_scale"),
    ):
        put(name.upper(), place)
        shared.append(np.asarray(values[name], np.float64).ravel())
        place += shared[-1].size
    vectors, row = [], 0
    for name in ("mass", "gram", "weight", "stiffness", "weights", "harmonics", "rates", "extra", "inputs"):
        put(name.upper(), row)
        vectors.append(np.asarray(values[name], np.float64).reshape(len(values[name]), -1))
        row += vectors[-1].shape[1]
    sizes = {
        **{"Q": d, "QD": d, "U": values["inputs"].shape[3], "PULL": m, "QDD": d},
        **{"PHI": k, "PHI_SLOPE": k * d, "PHI_RATE": k, "PHI_ACCEL": k, "ANGLE": 4 * j, "ANGLE_SLOPE": j * d},
        **{"FEATURE_SLOPE": r * d, "FEATURE_BEND": r, "MOTION_SLOPE": m * d, "MOTION_BEND": m, "PRODUCT": m * d},
        **{"INERTIA": d * d, "MOMENTUM": d, "FORCE": d, "POWERS": d * (int(values["highest"]) + 1), "CLIP_SLOPE": d},
        **{"FROM_Q": d, "FROM_QD": d, "STEP": 1, "SLOPES": 2 * NUM_STAGES * d, "ROWS": 0},
    }
    for name, size in sizes.items():
        put(name, row)
        row += size
    return KernelModel(
        np.concatenate([layout, *tables]), np.concatenate(shared), np.ascontiguousarray(np.concatenate(vectors, axis=1))
    )
