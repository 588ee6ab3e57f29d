"""States along a recorded clip, and along its continuation by the dynamics before the start and past the end."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.types import State

Advance = Callable[[State, float, float], State]
"""The state some signed seconds (second argument) after a time in seconds (third argument)."""


class Timeline:
    """The state at any time of one clip: on the recorded path inside it, rolled out by `advance` outside.

    Between recorded frames q is the cubic that fits positions and rates at both ends. Outside, states on a grid of
    `knot_s` seconds are kept, so that asking again costs one short step.

    Law: tests/test_simulator_laws.py, continuous where the recording begins and ends.
    """

    def __init__(
        self,
        times_s: Float[Tensor, " T"],
        q: Float[Tensor, "T d"],
        qd: Float[Tensor, "T d"],
        advance: Advance,
        knot_s: float = 1 / 15,
    ) -> None:
        self._times = [float(t) for t in times_s]
        self._q, self._qd = q.detach().cpu().double(), qd.detach().cpu().double()
        self._advance, self._knot_s = advance, knot_s
        self._after = [State(self._q[-1], self._qd[-1])]
        self._before = [State(self._q[0], self._qd[0])]

    @property
    def start_s(self) -> float:
        """Time of the first recorded frame, seconds."""
        return self._times[0]

    @property
    def end_s(self) -> float:
        """Time of the last recorded frame, seconds."""
        return self._times[-1]

    def state(self, time_s: float) -> State:
        """The state at a time in seconds since the clip's first frame.

        Raises: ValueError for a time that is not finite.
        """
        if not math.isfinite(time_s):
            raise ValueError(
                f"A time must be a finite number of seconds, but is {time_s}.\n  Pass seconds, such as 1.5."
            )
        if time_s > self.end_s:
            return self._continued(self._after, time_s - self.end_s, self.end_s, 1.0)
        if time_s < self.start_s:
            return self._continued(self._before, self.start_s - time_s, self.start_s, -1.0)
        return self._recorded(time_s)

    def forget_rollouts(self) -> None:
        """Drops what was rolled out, after the physics changed."""
        del self._after[1:], self._before[1:]

    def _continued(self, knots: list[State], away_s: float, from_s: float, direction: float) -> State:
        index, step = int(away_s / self._knot_s), direction * self._knot_s
        while len(knots) <= index:
            knots.append(self._advance(knots[-1], step, from_s + (len(knots) - 1) * step))
        return self._advance(knots[index], direction * away_s - index * step, from_s + index * step)

    def _recorded(self, time_s: float) -> State:
        k = min(max(bisect_right(self._times, time_s) - 1, 0), len(self._times) - 1)
        if k == len(self._times) - 1 or time_s == self._times[k]:
            return State(self._q[k].clone(), self._qd[k].clone())
        h = self._times[k + 1] - self._times[k]
        s = (time_s - self._times[k]) / h
        ends = torch.stack([self._q[k], h * self._qd[k], self._q[k + 1], h * self._qd[k + 1]])
        value = ends.new_tensor([2 * s**3 - 3 * s**2 + 1, s**3 - 2 * s**2 + s, 3 * s**2 - 2 * s**3, s**3 - s**2])
        slope = ends.new_tensor([6 * s**2 - 6 * s, 3 * s**2 - 4 * s + 1, 6 * s - 6 * s**2, 3 * s**2 - 2 * s]) / h
        return State(value @ ends, slope @ ends)
