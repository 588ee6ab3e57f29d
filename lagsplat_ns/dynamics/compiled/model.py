"""The numbers of a mechanism as arrays that kernels read, and the scratch memory that they write.

S parameter vectors, d coordinates, m inputs; K monomials, J angles, R features, M motion numbers (those that the gram
matrix is about: features themselves where that is fewer), T terms of the potential, H harmonics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lagsplat_ns.dynamics.compiled.group import device

__all__ = ["KernelModel", "Scratch", "new_scratch"]


class KernelModel(NamedTuple):
    """A batch of mechanisms of the same shape; all arrays are C-contiguous, float64 or int64."""

    # motion
    exponents: np.ndarray  # [K, d]
    angles: np.ndarray  # [J, K]
    features: np.ndarray  # [R, 3]: monomial, angle, which of 1, cos, sin
    map: np.ndarray  # [M, R], or [0, 0] where motion numbers are the features
    degree: int
    ridge: float
    # inertia
    is_constant: bool
    mass: np.ndarray  # [S, d, d] where constant
    gram: np.ndarray  # [S, M, M]
    weight: np.ndarray  # [S, M]
    has_weight: bool
    mass_scale: float
    # potential
    center: np.ndarray  # [d]
    inverse_scale: np.ndarray  # [d]
    inverse_clip: float
    term_axes: np.ndarray  # [T, 2]
    term_powers: np.ndarray  # [T, 2]
    highest_power: int
    stiffness: np.ndarray  # [S, d, d], in scaled coordinates
    weights: np.ndarray  # [S, T]
    harmonic_axes: np.ndarray  # [H]
    harmonic_rates: np.ndarray  # [H]
    harmonics: np.ndarray  # [S, H, 2]
    # damping
    rates: np.ndarray  # [S, 3]: viscous, drag, dry
    has_speed: bool
    slow_square: float
    same_group: np.ndarray  # [d, d]
    extra: np.ndarray  # [S, d, d]
    # inputs
    input_center: np.ndarray  # [d]
    input_inverse_scale: np.ndarray  # [d]
    inputs: np.ndarray  # [S, B, d, m], B one or 1 + d


class Scratch(NamedTuple):
    """Memory of one thread."""

    phi: np.ndarray  # [K]
    phi_slope: np.ndarray  # [K, d]
    phi_rate: np.ndarray  # [K]
    phi_accel: np.ndarray  # [K]
    angle_slope: np.ndarray  # [J, d]
    angle: np.ndarray  # [J, 4]: cos, sin, rate, acceleration at constant q'
    feature_slope: np.ndarray  # [R, d]
    feature_bend: np.ndarray  # [R]
    motion_slope: np.ndarray  # [M, d]
    motion_bend: np.ndarray  # [M]
    product: np.ndarray  # [M, d]
    mass: np.ndarray  # [d, d]
    momentum: np.ndarray  # [d]
    force: np.ndarray  # [d]
    powers: np.ndarray  # [d, highest + 1]
    clip_slope: np.ndarray  # [d]
    taylor: np.ndarray  # [3]


@device
def new_scratch(model):
    """Scratch memory for a model."""
    k, d = model.exponents.shape
    j, r, m = model.angles.shape[0], model.features.shape[0], model.gram.shape[1]
    return Scratch(
        np.zeros(k),
        np.zeros((k, d)),
        np.zeros(k),
        np.zeros(k),
        np.zeros((j, d)),
        np.zeros((j, 4)),
        np.zeros((r, d)),
        np.zeros(r),
        np.zeros((m, d)),
        np.zeros(m),
        np.zeros((m, d)),
        np.zeros((d, d)),
        np.zeros(d),
        np.zeros(d),
        np.zeros((d, model.highest_power + 1)),
        np.zeros(d),
        np.zeros(3),
    )
