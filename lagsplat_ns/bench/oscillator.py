"""A linear equation of motion with constant coefficients, fitted to a latent path."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64
from scipy.linalg import expm
from scipy.optimize import least_squares
from torch import Tensor

from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.smoothing import smooth

__all__ = ["LinearOscillator", "fit_oscillator"]


class LinearOscillator:
    """q'' = a0 - K (q - center) - C qd + B u. stiffness, damping [d, d]; drive [d, m]; offset, center [d]."""

    def __init__(
        self,
        center: Float64[np.ndarray, " d"],
        offset: Float64[np.ndarray, " d"],
        stiffness: Float64[np.ndarray, "d d"],
        damping: Float64[np.ndarray, "d d"],
        drive: Float64[np.ndarray, "d m"],
    ) -> None:
        self._parts = [torch.from_numpy(np.array(x)) for x in (center, offset, stiffness, damping, drive)]

    def acceleration(self, q: Tensor, qd: Tensor, u: Tensor) -> Tensor:
        center, offset, stiffness, damping, drive = self._parts
        return offset - stiffness @ (q - center) - damping @ qd + drive @ u


def fit_oscillator(observed: ObservedPath) -> LinearOscillator:
    """Least squares on the whole path, from a start found by regression on the change of velocity over every frame."""
    smoothed = smooth(observed.times_s, observed.q)
    times_s, q, qd = observed.times_s.numpy(), observed.q.numpy(), smoothed.qd.numpy()
    middles = torch.from_numpy(0.5 * (times_s[1:] + times_s[:-1]))
    driven = np.zeros((len(q) - 1, 0)) if observed.inputs is None else observed.inputs(middles).numpy()
    count, d = q.shape
    center, scale = q.mean(0), np.maximum(np.ptp(q, axis=0) / 2, 1e-9)
    y, v = (q - center) / scale, qd / scale
    steps = np.diff(times_s)
    m = driven.shape[1]
    middle_y, middle_v = 0.5 * (y[1:] + y[:-1]), 0.5 * (v[1:] + v[:-1])
    columns = np.concatenate([np.ones((count - 1, 1)), middle_y, middle_v, driven], axis=1) * steps[:, None]
    weights = np.linalg.lstsq(columns, np.diff(v, axis=0), rcond=None)[0]  # [1 + 2d + m, d]
    state = np.concatenate([y[0], v[0]])
    rates = np.median(steps)

    def roll(parameters: np.ndarray) -> np.ndarray:
        w = parameters[: weights.size].reshape(weights.shape)
        system = np.zeros((2 * d + 1 + m, 2 * d + 1 + m))
        system[:d, d : 2 * d] = np.eye(d)
        system[d : 2 * d, :d], system[d : 2 * d, d : 2 * d] = w[1 : 1 + d].T, w[1 + d : 1 + 2 * d].T
        system[d : 2 * d, 2 * d], system[d : 2 * d, 2 * d + 1 :] = w[0], w[1 + 2 * d :].T
        usual = expm(system * rates)
        x, rows = np.concatenate([parameters[weights.size :], [1.0], np.zeros(m)]), [parameters[weights.size :][:d]]
        for step, u in zip(steps, driven):
            x[2 * d + 1 :] = u
            x = (usual if abs(step - rates) < 1e-9 else expm(system * step)) @ x
            rows.append(x[:d].copy())
        return np.array(rows)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            difference = roll(parameters) - y
        return np.clip(np.nan_to_num(difference, nan=1e3, posinf=1e3, neginf=-1e3), -1e3, 1e3).ravel()

    fit = least_squares(residuals, np.concatenate([weights.ravel(), state]), method="trf", max_nfev=60)
    w = fit.x[: weights.size].reshape(weights.shape)
    by_scale = scale[:, None] / scale[None]
    return LinearOscillator(
        center,
        scale * w[0],
        -w[1 : 1 + d].T * by_scale,
        -w[1 + d : 1 + 2 * d].T * by_scale,
        scale[:, None] * w[1 + 2 * d :].T,
    )
