"""Frequencies and decay rates: of a mechanism linearized at rest, and of a recorded ring-down."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.optimize import linear_sum_assignment

from lagsplat_ns.bench.truth import TrueMode

__all__ = ["damped_tones", "linearized_modes", "matched_errors"]

Acceleration = Callable[[np.ndarray, np.ndarray], np.ndarray]


def linearized_modes(
    acceleration: Acceleration, rest: Float64[np.ndarray, " d"], scale: float = 1e-4
) -> list[tuple[float, float]]:
    """(frequency in Hz, decay rate in 1/s) of every mode of q'' = a(q, q') around a rest state, slowest first.

    scale: size of the differences, in units of q. A pair of real eigenvalues makes two modes of frequency zero.
    """
    d = len(rest)
    slope = np.zeros((2 * d, 2 * d))
    slope[:d, d:] = np.eye(d)
    still = np.zeros(d)
    for k in range(d):
        shift = scale * np.eye(d)[k]
        slope[d:, k] = (acceleration(rest + shift, still) - acceleration(rest - shift, still)) / (2 * scale)
        slope[d:, d + k] = (acceleration(rest, shift) - acceleration(rest, -shift)) / (2 * scale)
    values = np.linalg.eigvals(slope)
    kept = [v for v in sorted(values, key=abs) if v.imag >= -1e-9 * (1 + abs(v))]
    return [(float(abs(v.imag) / (2 * math.pi)), float(-v.real)) for v in kept]


def damped_tones(
    signals: Float64[np.ndarray, "T c"], step_s: float, num_tones: int
) -> list[tuple[float, float, float]]:
    """(frequency in Hz, decay rate in 1/s, power) of damped tones that several evenly sampled signals share.

    The matrix pencil method: the signal space of stacked Hankel matrices, shifted by one sample. Strongest first.

    Source: Hua and Sarkar, "Matrix pencil method for estimating parameters of exponentially damped sinusoids", 1990.
    """
    signals = signals - signals[-len(signals) // 4 :].mean(0)
    if np.abs(signals).max() < 1e-9:
        return []  # nothing moves
    length = len(signals) // 3
    rows = len(signals) - length
    stacked = np.concatenate([np.lib.stride_tricks.sliding_window_view(s, length)[:rows] for s in signals.T])
    _, _, axes = np.linalg.svd(stacked, full_matrices=False)
    basis = axes[: 2 * num_tones + 1].T  # one more than the tones: the constant that a wrong mean leaves
    poles = np.linalg.eigvals(np.linalg.lstsq(basis[:-1], basis[1:], rcond=None)[0])
    powers = poles[None] ** np.arange(len(signals))[:, None]
    amplitudes = np.linalg.lstsq(powers, signals.astype(complex), rcond=None)[0]
    tones = []
    for pole, amplitude, course in zip(poles, amplitudes, powers.T):
        rate = np.log(pole) / step_s if abs(pole) > 1e-12 else complex(-1.0)
        if rate.imag > 0.05:
            power = float((np.abs(amplitude) ** 2).sum() * (np.abs(course) ** 2).mean())
            tones.append((float(rate.imag / (2 * math.pi)), float(-rate.real), power))
    return sorted(tones, key=lambda tone: -tone[2])[:num_tones]


def matched_errors(found: list[tuple[float, float]], true: list[TrueMode]) -> tuple[list[float], list[float]]:
    """Relative errors of frequency and of decay rate, one per true mode, in their order.

    Every true mode gets a different found one, so that the logarithms of the frequencies fit best; a true mode that
    is left without one has error 1. Modes that do not oscillate are compared by their decay rate alone (frequency
    error 0 if the found one does not oscillate either).
    """
    frequency_errors, decay_errors = [1.0] * len(true), [1.0] * len(true)
    if not found or not true:
        return frequency_errors, decay_errors
    floor = 1e-2
    cost = np.abs(
        np.log(np.array([max(mode.frequency_hz, floor) for mode in true]))[:, None]
        - np.log(np.array([max(f, floor) for f, _ in found]))[None]
    ) + 1e-3 * np.abs(np.array([mode.decay_rate for mode in true])[:, None] - np.array([c for _, c in found])[None])
    for i, j in zip(*linear_sum_assignment(cost), strict=True):
        mode, (frequency, decay) = true[i], found[j]
        if mode.frequency_hz > floor:
            frequency_errors[i] = abs(frequency / mode.frequency_hz - 1)
        else:
            frequency_errors[i] = 0.0 if frequency < floor else 1.0
        decay_errors[i] = abs(decay / mode.decay_rate - 1) if mode.decay_rate > 0 else abs(decay)
    return frequency_errors, decay_errors
