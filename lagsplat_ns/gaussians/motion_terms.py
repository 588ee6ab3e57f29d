"""Motion bases told to the compiled dynamics: features and the map from them to the motion vector."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from lagsplat_ns.dynamics.compiled.terms import COSINE, ONE, SINE, MotionTerms
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import MotionBases

__all__ = ["motion_terms"]


@torch.no_grad()
def motion_terms(bases: nn.Module) -> MotionTerms | None:
    """The features of bases whose motion is known in closed form, else None.

    Law: tests/laws/test_compiled.py.
    """
    if type(bases) is ArticulatedBases:
        return _of_tree(bases)
    if type(bases) is MotionBases:
        return _of_polynomials(bases)
    return None


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def _of_tree(bases: ArticulatedBases) -> MotionTerms:
    """E_p = exp(i theta_p), t_p = sum over ancestors a of (E_above - E_a) b_a + E_above (s0_a + S_a q)."""
    d, num, parents = bases.latent_dim, bases.num_bases, bases.parents.tolist()
    exponents = np.concatenate([np.zeros((1, d), np.int64), np.eye(d, dtype=np.int64)])
    angles = np.concatenate([_numbers(bases.angle_offsets)[:, None], _numbers(bases.angle_rows)], axis=1)
    arms = _numbers(bases.anchors - bases.origin) @ np.array([1, 1j])
    fixed = _numbers(bases.slide_offsets) @ np.array([1, 1j])
    slides = np.array([1, 1j]) @ _numbers(bases.slide_rows)  # [P, d]
    features, index = [], {}
    for row in range(d + 1):
        features.append((row, 0, ONE))
        index[row, -1] = len(features) - 1
        for p in range(num):
            index[row, p] = len(features)
            features += [(row, p, COSINE), (row, p, SINE)]
    matrix = np.zeros((num, 4, len(features)))

    def add(part: int, place: int, row: int, angle: int, factor: complex) -> None:
        """Adds factor phi_row E_angle to the numbers at `place`; angle -1 is the world's, E = 1."""
        first = index[row, angle]
        matrix[part, place, first] += factor.real
        matrix[part, place + 1, first] += factor.imag
        if angle >= 0:
            matrix[part, place, first + 1] -= factor.imag
            matrix[part, place + 1, first + 1] += factor.real

    for p, parent in enumerate(parents):
        add(p, 0, 0, p, 1.0 + 0j)
        if parent >= 0:
            matrix[p, 2:] += matrix[parent, 2:]
        add(p, 2, 0, parent, complex(arms[p] + fixed[p]))
        add(p, 2, 0, p, complex(-arms[p]))
        for k in range(d):
            if slides[p, k] != 0:
                add(p, 2, 1 + k, parent, complex(slides[p, k]))
    return MotionTerms(exponents, angles, np.array(features), matrix.reshape(4 * num, -1))


def _of_polynomials(bases: MotionBases) -> MotionTerms:
    """E_p as above, t_p a polynomial of q, or what a rotation about a fixed pivot makes it."""
    num, exponents = bases.num_bases, bases.monomials.exponents.cpu().numpy()
    count = len(exponents)
    features = [(row, 0, ONE) for row in range(count)]
    for p in range(num):
        features += [(0, p, COSINE), (0, p, SINE)]
    matrix = np.zeros((num, 4, len(features)))
    for p in range(num):
        cosine, sine = count + 2 * p, count + 2 * p + 1
        matrix[p, 0, cosine] = matrix[p, 1, sine] = 1.0
        if bool(bases.has_pivots):
            x, z = _numbers(bases.pivots - bases.origin)[p]
            matrix[p, 2, [0, cosine, sine]] = x, -x, z
            matrix[p, 3, [0, cosine, sine]] = z, -z, -x
        else:
            matrix[p, 2:, :count] = _numbers(bases.translation_coefficients)[:, p].T
    angles = np.ascontiguousarray(_numbers(bases.angle_coefficients).T)
    return MotionTerms(exponents, angles, np.array(features), matrix.reshape(4 * num, -1))
