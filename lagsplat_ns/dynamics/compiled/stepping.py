"""Adaptive steps of one state by Dormand and Prince's method, compiled."""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling.lanes import LANES, load, store
from lagsplat_ns.dynamics import dormand_prince as method
from lagsplat_ns.dynamics.compiled import places as at
from lagsplat_ns.dynamics.compiled.acceleration import acceleration
from lagsplat_ns.dynamics.compiled.group import device, kernel
from lagsplat_ns.dynamics.compiled.layout import KernelModel
from lagsplat_ns.dynamics.compiled.rolling import new_memory

__all__ = ["advance"]

_WEIGHTS = np.zeros((6, 6))
for _row, _values in enumerate(method.STAGES):
    _WEIGHTS[_row, : len(_values)] = _values
_NODES, _ERROR = np.array(method.NODES), np.array(method.ERROR)


def advance(
    model: KernelModel,
    q: np.ndarray,
    qd: np.ndarray,
    dt: float,
    max_substep_s: float,
    inputs: np.ndarray,
    input_slopes: np.ndarray,
    pull: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """q and qd [d] after dt seconds (before for dt < 0), and how many seconds were left undone: 0 where all went well.

    inputs [m] at the beginning and their slopes [m], 1/s, or m = 0; pull [M or 0]: a weight on motion numbers.
    """
    y = np.concatenate([q, qd])
    tables = (_WEIGHTS, _NODES, _ERROR)
    left = _advance(
        model.layout, model.shared, model.vectors, y, dt, max_substep_s, inputs, input_slopes, pull, *tables
    )
    return y[: len(q)], y[len(q) :], left


@device
def _slope(n, c, w, k, inputs, input_slopes, after, has_pull):
    """Writes the slope (q', q'') of the states in Q and QD to the k-th rows of SLOPES."""
    d = n[at.D]
    for i in range(inputs.shape[0]):
        for lane in range(LANES):
            w[(n[at.U] + i) * LANES + lane] = inputs[i] + after * input_slopes[i]
    acceleration(n, c, w, inputs.shape[0] > 0, has_pull)
    first = n[at.SLOPES] + 2 * k * d
    for i in range(d):
        store(w, first + i, load(w, n[at.QD] + i))
        store(w, first + d + i, load(w, n[at.QDD] + i))


@device
def _move(n, w, weights, count, h, q_rows):
    """Writes FROM + h times the weighted slopes to the rows of q and, after them, of qd."""
    d = n[at.D]
    for i in range(2 * d):
        total = load(w, n[at.SLOPES] + i) * weights[0]
        for k in range(1, count):
            total = total + load(w, n[at.SLOPES] + 2 * k * d + i) * weights[k]
        store(w, q_rows + i, load(w, n[at.FROM_Q] + i) + h * total)


@device
def _error(n, w, weights, h):
    """The local error of the proposal in Q and QD over what is allowed; infinite where it is not a number."""
    d, largest = n[at.D], 0.0
    for i in range(2 * d):
        total = 0.0
        for k in range(7):
            total += w[(n[at.SLOPES] + 2 * k * d + i) * LANES] * weights[k]
        size = max(abs(w[(n[at.FROM_Q] + i) * LANES]), abs(w[(n[at.Q] + i) * LANES]))
        error = abs(h * total) / (method.ABSOLUTE_TOLERANCE + method.RELATIVE_TOLERANCE * size)
        if not error <= largest:
            largest = error if error == error else math.inf
    return largest


@kernel(fastmath=False)
def _advance(n, c, vectors, y, dt, max_substep_s, inputs, input_slopes, pull, weights, nodes, error_weights):
    d = n[at.D]
    w = new_memory(n)
    has_pull = pull.shape[0] > 0
    for lane in range(LANES):  # all lanes carry the same state
        for row in range(vectors.shape[1]):
            w[row * LANES + lane] = vectors[0, row]
        for i in range(pull.shape[0]):
            w[(n[at.PULL] + i) * LANES + lane] = pull[i]
        for i in range(2 * d):
            w[(n[at.FROM_Q] + i) * LANES + lane] = w[(n[at.Q] + i) * LANES + lane] = y[i]
    left, direction, longest = abs(dt), 1.0 if dt >= 0.0 else -1.0, max_substep_s
    if left > 0.0:
        _slope(n, c, w, 0, inputs, input_slopes, 0.0, has_pull)
    for _ in range(method.MAX_SUBSTEPS):
        if left <= 0.0:
            break
        size = min(longest, left)
        begun, h = direction * (abs(dt) - left), direction * size
        for k in range(6):
            _move(n, w, weights[k], k + 1, h, n[at.Q])
            _slope(n, c, w, k + 1, inputs, input_slopes, begun + nodes[k] * h, has_pull)
        error = _error(n, w, error_weights, h)
        growth = 0.9 * max(error, 1e-10) ** -0.2 if error < math.inf else 0.2
        if error <= 1.0:
            largest = 0.0
            for i in range(2 * d):
                value = load(w, n[at.Q] + i)
                store(w, n[at.FROM_Q] + i, value)
                store(w, n[at.SLOPES] + i, load(w, n[at.SLOPES] + 12 * d + i))
                largest = max(largest, abs(w[(n[at.Q] + i) * LANES]))
            left -= size
            if largest > method.MAX_MAGNITUDE:
                left = max(left, 1e-300)
                break
            if left < 1e-12:
                left = 0.0
            if size == longest or growth < 1.0:
                longest = min(size * min(growth, 4.0), max_substep_s)
        else:
            longest = size * max(growth, 0.1)
    for i in range(2 * d):
        y[i] = w[(n[at.FROM_Q] + i) * LANES]
    return left
