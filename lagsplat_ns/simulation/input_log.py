"""The measured inputs of a recorded clip, and the motion that they drive where the recording is continued."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.types import State

__all__ = ["InputLog", "LoggedMotion", "input_logs"]


class InputLog:
    """Inputs over time: between two rows on the line through them (or held), zero before the first and after the last.

    table [K, 1 + m]: seconds since the clip's first frame, strictly increasing, then one column per input.
    """

    def __init__(self, table: Float[Tensor, "K n"], is_held: bool = False) -> None:
        self._times: list[float] = table[:, 0].tolist()
        self._values, self._is_held = table[:, 1:].double(), is_held

    @property
    def num_inputs(self) -> int:
        return self._values.shape[1]

    def edges(self, begin_s: float, end_s: float) -> list[float]:
        """Times of the rows strictly between two times, in the order of the way from one to the other."""
        low, high = min(begin_s, end_s), max(begin_s, end_s)
        inside = self._times[bisect_right(self._times, low) : bisect_left(self._times, high)]
        return inside if end_s >= begin_s else inside[::-1]

    def piece(self, begin_s: float, end_s: float) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Inputs where a piece without rows inside begins, and their slope along it, 1/s of time that runs forward."""
        middle = 0.5 * (begin_s + end_s)
        k = bisect_right(self._times, middle) - 1
        zero = self._values.new_zeros(self.num_inputs)
        if k < 0 or k >= len(self._times) - 1:
            return zero, zero
        if self._is_held:
            return self._values[k], zero
        slope = (self._values[k + 1] - self._values[k]) / (self._times[k + 1] - self._times[k])
        return self._values[k] + (begin_s - self._times[k]) * slope, slope


class LoggedMotion:
    """The unforced motion of a mechanism under the inputs of a log; steps never cross a row of it."""

    def __init__(self, log: InputLog | None, stepper: Stepper) -> None:
        self._log, self._stepper = log, stepper

    @torch.no_grad()
    def advance(self, mechanism: Mechanism, state: State, dt: float, time_s: float) -> State:
        """The state `dt` seconds after `time_s` (before it for dt < 0).

        Raises: FloatingPointError if the motion cannot be followed.
        """
        log, compiled = self._log, self._stepper.compiled(mechanism)
        if log is None or dt == 0.0:
            zero = state.q.new_zeros(mechanism.num_inputs) if mechanism.num_inputs else None
            if compiled is not None:
                return self._stepper.advance_compiled(compiled, state, dt, zero)
            return self._stepper.advance(state, dt, lambda now, _: forward_dynamics(mechanism, now, inputs=zero))
        edges = [time_s, *log.edges(time_s, time_s + dt), time_s + dt]
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            first, slope = log.piece(begin, end)
            if compiled is not None:
                state = self._stepper.advance_compiled(compiled, state, end - begin, first, slope)
                continue

            def driven(now: State, after: float, first: Tensor = first, slope: Tensor = slope) -> Tensor:
                return forward_dynamics(mechanism, now, inputs=first + after * slope)

            state = self._stepper.advance(state, end - begin, driven)
        return state


def input_logs(scene: object) -> Sequence[InputLog | None]:
    """The logs of a scene's clips as its spec keeps them; empty for a scene that knows of none."""
    spec = getattr(scene, "spec", None)
    tables: Sequence[Tensor] = getattr(spec, "input_logs", ())
    is_held = bool(getattr(spec, "holds_inputs", False))
    return [InputLog(table.cpu(), is_held) if len(table) > 1 else None for table in tables]
