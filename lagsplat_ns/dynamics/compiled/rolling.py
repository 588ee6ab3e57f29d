"""Rollouts of many windows under many parameter vectors by rk4, shared by threads."""

from __future__ import annotations

import math

import numpy as np

from lagsplat_ns.compiling import pool
from lagsplat_ns.compiling.atomics import draw_ticket
from lagsplat_ns.dynamics.compiled.acceleration import acceleration
from lagsplat_ns.dynamics.compiled.group import MATH, device, kernel
from lagsplat_ns.dynamics.compiled.model import KernelModel, new_scratch

__all__ = ["accelerations", "roll", "stage_times"]

_STEPS_PER_TICKET = 400


def stage_times(start_s: np.ndarray, dt: np.ndarray, substeps: int) -> np.ndarray:
    """Times [W, 2 L substeps + 1] at which rk4 asks for inputs: beginnings, middles and ends of all steps.

    start_s [W] seconds; dt [W, L] seconds per frame.
    """
    halves = np.repeat(dt / (2 * substeps), 2 * substeps, axis=1)
    return start_s[:, None] + np.concatenate([np.zeros((len(dt), 1)), np.cumsum(halves, axis=1)], axis=1)


def roll(
    model: KernelModel,
    q: np.ndarray,
    qd: np.ndarray,
    dt: np.ndarray,
    inputs: np.ndarray,
    substeps: int,
    num_threads: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """q and qd [S, W, L + 1, d] from starts [S, W, d]; NaN from where a rollout leaves the range of numbers.

    dt [W, L] seconds, zero where nothing more is to be rolled; inputs [W, 2 L substeps + 1, m] at `stage_times`, or
    m = 0; num_threads: by default as many as `pool.get_num_threads()`.
    """
    count, windows, d = q.shape
    steps = dt.shape[1]
    path, rates = np.empty((count, windows, steps + 1, d)), np.empty((count, windows, steps + 1, d))
    chunk = max(_STEPS_PER_TICKET // max(steps * substeps, 1), 1)
    tickets = -(-count * windows // chunk)
    pool.run(_roll, tickets, model, q, qd, dt, inputs, substeps, chunk, path, rates, num_threads=num_threads)
    return path, rates


@kernel(fastmath=MATH)
def accelerations(model, q, qd, inputs, extra_weight, out):
    """out [S, N, d] at states q, qd [S, N, d] with inputs [N, m]; what tests compare."""
    w = new_scratch(model)
    for s in range(q.shape[0]):
        vector = s if model.stiffness.shape[0] > 1 else 0
        for n in range(q.shape[1]):
            acceleration(model, vector, q[s, n], qd[s, n], inputs[n], extra_weight, out[s, n], w)


@device
def _stages(model, vector, q, qd, h, inputs, first, no_weight, y, v, a, w):
    """One step of rk4: replaces q and qd. y, v [d] and a [4, d] are memory."""
    d = q.shape[0]
    for stage in range(4):
        if stage == 0:
            for i in range(d):
                y[i], v[i] = q[i], qd[i]
        else:
            share = 0.5 * h if stage < 3 else h
            for i in range(d):
                y[i] = q[i] + share * v[i]
                v[i] = qd[i] + share * a[stage - 1, i]
        acceleration(model, vector, y, v, inputs[first + (stage + 1) // 2], no_weight, a[stage], w)
    for i in range(d):
        q[i] += h * (qd[i] + h / 6.0 * (a[0, i] + a[1, i] + a[2, i]))
        qd[i] += h / 6.0 * (a[0, i] + 2.0 * (a[1, i] + a[2, i]) + a[3, i])


@kernel(fastmath=MATH)
def _roll(counter, model, starts, start_rates, dt, inputs, substeps, chunk, path, rates):
    num_vectors, num_windows, d = starts.shape
    steps = dt.shape[1]
    w = new_scratch(model)
    q, qd, y, v = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    a, no_weight = np.zeros((4, d)), np.zeros(0)
    total = num_vectors * num_windows
    while True:
        ticket = draw_ticket(counter)
        if ticket * chunk >= total:
            break
        for index in range(ticket * chunk, min((ticket + 1) * chunk, total)):
            s, window = index // num_windows, index % num_windows
            vector = s if model.stiffness.shape[0] > 1 else 0
            for i in range(d):
                q[i] = path[s, window, 0, i] = starts[s, window, i]
                qd[i] = rates[s, window, 0, i] = start_rates[s, window, i]
            is_finite = True
            for k in range(steps):
                h = dt[window, k] / substeps
                if h != 0.0 and is_finite:
                    for sub in range(substeps):
                        first = 2 * (k * substeps + sub) if inputs.shape[2] > 0 else 0
                        _stages(model, vector, q, qd, h, inputs[window], first, no_weight, y, v, a, w)
                    for i in range(d):
                        if not (math.isfinite(q[i]) and math.isfinite(qd[i])):
                            is_finite = False
                if not is_finite:
                    for i in range(d):
                        q[i] = qd[i] = math.nan
                for i in range(d):
                    path[s, window, k + 1, i] = q[i]
                    rates[s, window, k + 1, i] = qd[i]
