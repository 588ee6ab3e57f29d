"""Local cubic fits of a noisy path: values, rates, accelerations, and the noise level."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Smoothed", "noise_level", "smooth"]

_HALF_WIDTHS = (3, 4, 5, 7, 9, 12, 16, 22, 30, 40, 55, 75, 100)


class Smoothed:
    """A smoothed path: q, qd, qdd [T, d] in units of 1, 1/s, 1/s^2."""

    def __init__(self, q: Tensor, qd: Tensor, qdd: Tensor) -> None:
        self.q, self.qd, self.qdd = q, qd, qdd


def _local_fit(times: Tensor, q: Tensor, half: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cubic through 2 half + 1 frames about every frame: value, rate, acceleration, and scaled residual."""
    count = times.shape[0]
    width = min(2 * half + 1, count)
    begin = (torch.arange(count) - half).clamp(0, count - width)
    index = begin[:, None] + torch.arange(width)
    offset = times[index] - times[:, None]
    unit = offset.abs().amax(-1, keepdim=True)
    basis = (offset / unit)[..., None] ** torch.arange(4)
    inverse = torch.linalg.pinv(basis)  # [T, 4, width]
    coefficients = inverse @ q[index]
    own = torch.arange(count) - begin
    leverage = inverse[torch.arange(count), 0, own]
    residual = (q - coefficients[:, 0]) / (1 - leverage).clamp(min=1e-3).sqrt()[:, None]
    return coefficients[:, 0], coefficients[:, 1] / unit, 2 * coefficients[:, 2] / unit**2, residual


def _robust_spread(residual: Tensor) -> Tensor:
    """Standard deviation per coordinate from the median of magnitudes."""
    return residual.abs().median(dim=0).values / 0.6745


def noise_level(times_s: Float[Tensor, " T"], q: Float[Tensor, "T d"]) -> Float[Tensor, " d"]:
    """Standard deviation of the noise in each coordinate, from what a cubic through seven frames leaves."""
    return _robust_spread(_local_fit(times_s, q, 3)[3])


def smooth(times_s: Float[Tensor, " T"], q: Float[Tensor, "T d"]) -> Smoothed:
    """Local cubic fits over as many frames as the noise allows: the widest whose residual is still noise."""
    noise = noise_level(times_s, q)
    best = _local_fit(times_s, q, 3)
    for half in _HALF_WIDTHS[1:]:
        if 2 * half + 1 > times_s.shape[0] // 2:
            break
        fit = _local_fit(times_s, q, half)
        if bool((_robust_spread(fit[3]) > 1.15 * noise + 1e-12).any()):
            break
        best = fit
    return Smoothed(*best[:3])
