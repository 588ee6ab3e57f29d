"""Rollouts of many windows under many parameter vectors by rk4, eight at once in each of a few threads."""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling import pool
from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.compiling.lanes import LANES, load, store
from lagsplat_ns.dynamics.compiled import places as at
from lagsplat_ns.dynamics.compiled.acceleration import acceleration
from lagsplat_ns.dynamics.compiled.group import device, kernel
from lagsplat_ns.dynamics.compiled.layout import KernelModel

__all__ = ["accelerations", "new_memory", "roll"]


def roll(
    model: KernelModel,
    q: np.ndarray,
    qd: np.ndarray,
    dt: np.ndarray,
    inputs: np.ndarray,
    substeps: int,
    num_threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """q and qd [S, W, L + 1, d] from starts [S, W, d].

    dt [W, L] seconds, zero where nothing more is to be rolled; inputs [W, 3 L substeps, m] at the beginning, middle
    and end of every step, or m = 0; num_threads: by default as many as `pool.get_num_threads()`. NaN from where a
    rollout leaves the range of numbers.
    """
    count, windows, d = q.shape
    path, rates = (np.empty((count, windows, dt.shape[1] + 1, d)) for _ in range(2))
    arrays = (model.layout, model.shared, model.vectors, q, qd, dt, inputs, substeps, path, rates)
    pool.run(_roll, -(-count * windows // LANES), *arrays, num_threads=num_threads)
    return path, rates


def accelerations(model: KernelModel, q: np.ndarray, qd: np.ndarray, inputs: np.ndarray | None = None) -> np.ndarray:
    """q'' [S, N, d] at states q, qd [S, N, d] under inputs [N, m]."""
    out = np.empty(q.shape)
    given = np.zeros((q.shape[1], 0)) if inputs is None else inputs
    _accelerations(model.layout, model.shared, model.vectors, q, qd, given, out)
    return out


@device
def new_memory(n):
    """Memory of one thread."""
    return np.zeros(n[at.ROWS] * LANES)


@device
def _take_vector(vectors, s, w, lane):
    """Writes a parameter vector to the first rows of one lane."""
    row = s if vectors.shape[0] > 1 else 0
    for k in range(vectors.shape[1]):
        w[k * LANES + lane] = vectors[row, k]


@kernel(fastmath=False)
def _accelerations(n, c, vectors, q, qd, inputs, out):
    d, num_states = n[at.D], q.shape[1]
    w = new_memory(n)
    total = q.shape[0] * num_states
    for first in range(0, total, LANES):
        for lane in range(LANES):
            index = min(first + lane, total - 1)
            s, state = index // num_states, index % num_states
            _take_vector(vectors, s, w, lane)
            for i in range(d):
                w[(n[at.Q] + i) * LANES + lane] = q[s, state, i]
                w[(n[at.QD] + i) * LANES + lane] = qd[s, state, i]
            for k in range(inputs.shape[1]):
                w[(n[at.U] + k) * LANES + lane] = inputs[state, k]
        acceleration(n, c, w, inputs.shape[1] > 0, False)
        for lane in range(min(LANES, total - first)):
            index = first + lane
            for i in range(d):
                out[index // num_states, index % num_states, i] = w[(n[at.QDD] + i) * LANES + lane]


@device
def _take_inputs(n, w, inputs, windows, moment):
    for lane in range(LANES):
        for k in range(n[at.NUM_INPUTS]):
            w[(n[at.U] + k) * LANES + lane] = inputs[windows[lane], moment, k]


@device
def _rk4(n, c, w, inputs, windows, first, has_inputs):
    """One step by rows STEP from FROM_Q and FROM_QD, which it replaces; slopes q'' of stages in SLOPES."""
    d, slopes = n[at.D], n[at.SLOPES]
    h = load(w, n[at.STEP])
    for stage in range(4):
        for i in range(d):
            q, qd = load(w, n[at.FROM_Q] + i), load(w, n[at.FROM_QD] + i)
            if stage == 0:
                store(w, n[at.Q] + i, q)
                store(w, n[at.QD] + i, qd)
            else:
                share = h if stage == 3 else 0.5 * h
                store(w, n[at.Q] + i, q + share * load(w, n[at.QD] + i))
                store(w, n[at.QD] + i, qd + share * load(w, slopes + (stage - 1) * d + i))
        if has_inputs and stage != 2:  # the middle is asked twice
            _take_inputs(n, w, inputs, windows, first + (stage + 1) // 2)
        acceleration(n, c, w, has_inputs, False)
        for i in range(d):
            store(w, slopes + stage * d + i, load(w, n[at.QDD] + i))
    sixth = h * (1.0 / 6.0)
    for i in range(d):
        a, b = load(w, slopes + i), load(w, slopes + d + i) + load(w, slopes + 2 * d + i)
        last, qd = load(w, slopes + 3 * d + i), load(w, n[at.FROM_QD] + i)
        store(w, n[at.FROM_Q] + i, load(w, n[at.FROM_Q] + i) + h * (qd + sixth * (a + b)))
        store(w, n[at.FROM_QD] + i, qd + sixth * (a + 2.0 * b + last))


@kernel(fastmath=False)
def _roll(counter, n, c, vectors, starts, start_rates, dt, inputs, substeps, path, rates):
    num_vectors, num_windows, d = starts.shape
    has_inputs = inputs.shape[2] > 0
    w = new_memory(n)
    which, windows = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    total = num_vectors * num_windows
    while True:
        ticket = draw_ticket(counter)
        if ticket * LANES >= total:
            break
        for lane in range(LANES):  # lanes beyond the last rollout repeat it
            index = min(ticket * LANES + lane, total - 1)
            s, window = index % num_vectors, index // num_vectors
            which[lane], windows[lane] = s, window
            _take_vector(vectors, s, w, lane)
            for i in range(d):
                w[(n[at.FROM_Q] + i) * LANES + lane] = path[s, window, 0, i] = starts[s, window, i]
                w[(n[at.FROM_QD] + i) * LANES + lane] = rates[s, window, 0, i] = start_rates[s, window, i]
        for k in range(dt.shape[1]):
            moves = False
            for lane in range(LANES):
                h = dt[windows[lane], k] / substeps
                w[n[at.STEP] * LANES + lane] = h
                moves = moves or h != 0.0
            if moves:
                for sub in range(substeps):
                    _rk4(n, c, w, inputs, windows, 3 * (k * substeps + sub), has_inputs)
            for lane in range(LANES):
                is_finite = True
                for i in range(2 * d):  # rates follow coordinates
                    if not math.isfinite(w[(n[at.FROM_Q] + i) * LANES + lane]):
                        is_finite = False
                for i in range(d):
                    if not is_finite:
                        w[(n[at.FROM_Q] + i) * LANES + lane] = w[(n[at.FROM_QD] + i) * LANES + lane] = math.nan
                    path[which[lane], windows[lane], k + 1, i] = w[(n[at.FROM_Q] + i) * LANES + lane]
                    rates[which[lane], windows[lane], k + 1, i] = w[(n[at.FROM_QD] + i) * LANES + lane]
