"""One adaptive Runge-Kutta step function, so that any step a person asks for is accurate and none of them explodes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.types import State

# Dormand and Prince, 1980
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

RELATIVE_TOLERANCE = 1e-8
ABSOLUTE_TOLERANCE = 1e-9
MAX_SUBSTEPS = 5_000
MAX_MAGNITUDE = 1e9

Acceleration = Callable[[State, float], Float[Tensor, " d"]]
"""q'' of a state, so many signed seconds after the step began."""


class Stepper:
    """Advances a state through q'' = a(q, q', t) by any signed time, with step sizes found by local error control.

    Order five, error estimate of order four (Dormand-Prince). No substep exceeds `max_substep_s`. Nothing is kept
    between calls, so that the same call always gives bitwise the same state.

    Law: tests/test_simulator_laws.py, steps back undo steps forward.
    Source: Dormand and Prince, "A family of embedded Runge-Kutta formulae", 1980.
    """

    def __init__(self, max_substep_s: float = 1 / 30) -> None:
        self.max_substep_s = max_substep_s

    def advance(self, state: State, dt: float, acceleration: Acceleration) -> State:
        """The state `dt` seconds later, or earlier for dt < 0.

        Raises: FloatingPointError if the motion cannot be followed: it left the range of numbers or became stiffer
        than `MAX_SUBSTEPS` substeps resolve.
        """
        d = state.q.shape[-1]
        y = torch.cat([state.q, state.qd])

        def slope(y: Tensor, after: float) -> Tensor:
            return torch.cat([y[d:], acceleration(State(y[:d], y[d:]), after)])

        left, direction, longest = abs(dt), 1.0 if dt >= 0 else -1.0, self.max_substep_s
        first = slope(y, 0.0) if left > 0 else y
        for _ in range(MAX_SUBSTEPS):
            if left <= 0.0:
                return State(y[:d].clone(), y[d:].clone())
            size = min(longest, left)
            begun = direction * (abs(dt) - left)
            proposal, last, error = _dormand_prince(y, first, direction * size, slope, begun)
            growth = 0.9 * max(error, 1e-10) ** -0.2 if error == error and error != float("inf") else 0.2
            if error <= 1.0:
                y, first, left = proposal, last, left - size
                if float(y.abs().max()) > MAX_MAGNITUDE:
                    break
                if left < 1e-12:
                    left = 0.0
                if size == longest or growth < 1.0:
                    longest = min(size * min(growth, 4.0), self.max_substep_s)
            else:
                longest = size * max(growth, 0.1)
        raise FloatingPointError(
            f"The motion must stay finite, but {abs(dt) - left:.4g} s into a step of {dt:.4g} s it "
            f"could not be followed any more (q = {_short(y[:d])}, q' = {_short(y[d:])}).\n"
            "  Go back with rest() or seek(), and use a smaller force or a shorter way back in time: backwards, "
            "damping amplifies every error."
        )


def _dormand_prince(
    y: Tensor, first: Tensor, h: float, slope: Callable[[Tensor, float], Tensor], begun: float
) -> tuple[Tensor, Tensor, float]:
    """The next y, its slope, and the local error over the tolerance."""
    slopes = [first]
    proposal = y
    for row, node in zip(_STAGES, _NODES, strict=True):
        weights = y.new_tensor(row) * h
        proposal = y + weights @ torch.stack(slopes)
        slopes.append(slope(proposal, begun + node * h))
    difference = (y.new_tensor(_ERROR) * h) @ torch.stack(slopes)
    allowed = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * torch.maximum(y.abs(), proposal.abs())
    error = float((difference / allowed).abs().max())
    return proposal, slopes[-1], error if error == error else float("inf")


def _short(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values.tolist()) + "]"
