"""Inputs from a log, given to an integrator so that steps and pulses between its nodes count in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["HasMoments", "LoggedInputs", "StageInputs", "joined_inputs", "step_inputs"]

CLIP_SPACING_S = 1e7
"""clips stand this far apart on the time axis of joined inputs"""

# Weights of rk4 for values at the beginning, middle and end of a step of length one: what it makes of them in the
# rate, int u ds, and in the position, int (1 - s) u ds.
_RK4_MOMENTS = torch.tensor([[1.0, 4.0, 1.0], [1.0, 2.0, 0.0]], dtype=torch.float64) / 6
_CORRECTION = torch.linalg.pinv(_RK4_MOMENTS)


@runtime_checkable
class HasMoments(Protocol):
    """Inputs u(t) that know int u ds / h and int (h - s) u ds / h^2 over steps of length h from given times."""

    def __call__(self, time: Tensor) -> Tensor: ...

    def moments(self, begin: Tensor, length: Tensor) -> tuple[Tensor, Tensor]: ...


class LoggedInputs:
    """Inputs between the rows of a log: on the line through two rows or, held, that of the earlier one.

    times_s [K] seconds, strictly increasing; values [K, m]. Before the first row and after the last that row's values.
    """

    def __init__(self, times_s: Float[Tensor, " K"], values: Float[Tensor, "K m"], is_held: bool = False) -> None:
        times, values = times_s.double().contiguous(), values.double()
        steps = times.diff()[:, None]
        slopes = torch.zeros_like(values)
        if not is_held and len(times) > 1:
            slopes[:-1] = values.diff(dim=0) / steps
        areas = (values + 0.5 * slopes * torch.cat([steps, steps.new_zeros(1, 1)]))[:-1] * steps
        first = torch.cat([values.new_zeros(1, values.shape[1]), areas.cumsum(0)])
        pieces = first[:-1] * steps + values[:-1] * steps**2 / 2 + slopes[:-1] * steps**3 / 6
        second = torch.cat([values.new_zeros(1, values.shape[1]), pieces.cumsum(0)])
        self._times, self._rows = times, torch.stack([values, slopes, first, second])

    def _at(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Time since the row that a time belongs to [*, 1]; that row's value, slope, integral and its integral."""
        index = torch.searchsorted(self._times, time.double().contiguous(), right=True) - 1
        value, slope, first, second = self._rows[:, index.clamp(min=0)]
        after = time.double()[..., None] - self._times[index.clamp(min=0)][..., None]
        return after, value, torch.where((index < 0)[..., None], 0.0, slope), first, second

    def __call__(self, time: Float[Tensor, "*B"]) -> Float[Tensor, "*B m"]:
        after, value, slope, _, _ = self._at(time)
        return value + after * slope

    def moments(
        self, begin: Float[Tensor, "*B"], length: Float[Tensor, "*B"]
    ) -> tuple[Float[Tensor, "*B m"], Float[Tensor, "*B m"]]:
        """Exact int u ds / h and int (h - s) u ds / h^2 over steps of length h; u itself (and its half) for h = 0."""
        h = length.double()[..., None]
        (a, u, k, first, second), (b, v, w, last, beyond) = self._at(begin), self._at(begin + length)
        start = first + a * u + a**2 / 2 * k
        area = last + b * v + b**2 / 2 * w - start
        twice = (beyond + b * last + b**2 / 2 * v + b**3 / 6 * w) - (second + a * first + a**2 / 2 * u + a**3 / 6 * k)
        here, is_step = self(begin), h != 0
        safe = torch.where(is_step, h, 1.0)
        return torch.where(is_step, area / safe, here), torch.where(is_step, (twice - h * start) / safe**2, here / 2)


class _JoinedInputs:
    """Inputs of several clips, each on its own stretch of one time axis."""

    def __init__(self, functions: Sequence[Callable[[Tensor], Tensor]]) -> None:
        self._functions = functions

    def _pick(self, time: Tensor, values: list[Tensor]) -> Tensor:
        clip = (time / CLIP_SPACING_S + 0.5).floor()
        result = values[0]
        for index, value in enumerate(values[1:], 1):
            result = torch.where((clip == index)[..., None], value, result)
        return result

    def __call__(self, time: Tensor) -> Tensor:
        return self._pick(time, [f(time - k * CLIP_SPACING_S) for k, f in enumerate(self._functions)])

    def moments(self, begin: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [_moments(f, begin - k * CLIP_SPACING_S, length) for k, f in enumerate(self._functions)]
        return self._pick(begin, [a for a, _ in pairs]), self._pick(begin, [b for _, b in pairs])


def joined_inputs(functions: Sequence[Callable[[Tensor], Tensor] | None]) -> Callable[[Tensor], Tensor] | None:
    """One function of time for all clips, clip k from k `CLIP_SPACING_S` on; None if a clip has none."""
    known = [function for function in functions if function is not None]
    if len(known) != len(functions):
        return None
    return known[0] if len(known) == 1 else _JoinedInputs(known)


def _nodes(inputs: Callable[[Tensor], Tensor], begin: Tensor, length: Tensor) -> Tensor:
    """Inputs at the beginning, middle and end of steps, [*, 3, m]."""
    shares = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    return inputs(begin[..., None] + shares * length[..., None]).double()


def _moments(inputs: Callable[[Tensor], Tensor], begin: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(inputs, HasMoments):
        return inputs.moments(begin, length)
    known = torch.einsum("ij,...jm->...im", _RK4_MOMENTS, _nodes(inputs, begin, length))
    return known[..., 0, :], known[..., 1, :]


def step_inputs(
    inputs: Callable[[Tensor], Tensor], begin: Float[Tensor, "*B"], length: Float[Tensor, "*B"]
) -> Float[Tensor, "*B 3 m"]:
    """What rk4 shall take for the inputs at the beginning, the middle (twice) and the end of steps.

    The values there, moved as little as it takes for the step to add to rate and position exactly what the log does,
    whatever happens between the nodes. Of smooth inputs nothing changes up to the order of the integrator.

    Law: tests/laws/test_logged_inputs.py.
    """
    values = _nodes(inputs, begin, length)
    if not isinstance(inputs, HasMoments):
        return values
    wanted = torch.stack(inputs.moments(begin, length), dim=-2)
    missing = wanted - torch.einsum("ij,...jm->...im", _RK4_MOMENTS, values)
    return values + torch.einsum("ji,...im->...jm", _CORRECTION, missing)


class StageInputs:
    """Inputs handed out in the order in which rk4 asks for them, from those of all steps [W, 3 S, m]."""

    def __init__(self, values: Float[Tensor, "W n m"]) -> None:
        self._values, self._asked = values, 0

    def __call__(self, _: Tensor) -> Float[Tensor, "W m"]:
        step, stage = divmod(self._asked, 4)
        self._asked += 1
        return self._values[:, 3 * step + (stage + 1) // 2]
