"""What parts of a mechanism tell the compiled dynamics about themselves.

A part that can be compiled offers `kernel_terms()`, which returns one of the records here, or None where it cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["HarmonicTerms", "HasKernelTerms", "MetricTerms", "MotionTerms"]

ONE, COSINE, SINE = 0, 1, 2


@runtime_checkable
class HasKernelTerms(Protocol):
    """A part of a mechanism that can be compiled."""

    def kernel_terms(self) -> object: ...


@dataclass(frozen=True)
class MotionTerms:
    """A motion vector m(q) [M] = constant + map f(q), made of R features phi_k(q) x (1, cos theta_j or sin theta_j).

    phi_k are monomials of q with the given exponents, the first of them 1; theta_j = sum_k angles_jk phi_k. A feature
    is (k, j, which): which is 0 for 1, 1 for the cosine, 2 for the sine.
    """

    exponents: Int[np.ndarray, "K d"]
    angles: Float[np.ndarray, "J K"]
    features: Int[np.ndarray, "R 3"]
    map: Float[np.ndarray, "M R"]


@dataclass(frozen=True)
class MetricTerms:
    """Inertia M(q) = D^T G D + ridge I with D = dm/dq, and a potential -w . m(q); or a constant `mass`.

    gram G [*P, M, M], weight w [*P, M], mass [*P, d, d]; any may carry a batch of parameter vectors.
    """

    motion: MotionTerms | None = None
    gram: Tensor | None = None
    weight: Tensor | None = None
    ridge: float = 0.0
    mass: Tensor | None = None


@dataclass(frozen=True)
class HarmonicTerms:
    """A potential sum_h (a_h cos(r_h q_i(h)) + b_h sin(r_h q_i(h))): weights (a, b) [*P, H, 2]."""

    axes: Int[np.ndarray, " H"]
    rates: Float[np.ndarray, " H"]
    weights: Tensor
