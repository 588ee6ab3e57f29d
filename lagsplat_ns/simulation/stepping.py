"""One adaptive Runge-Kutta step function, so that any step a person asks for is accurate and none of them explodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.compiled.pack import CompiledMechanism, compiled_of
from lagsplat_ns.dynamics.compiled.prepare import prepare
from lagsplat_ns.dynamics.compiled.stepping import advance
from lagsplat_ns.dynamics.dormand_prince import (
    ABSOLUTE_TOLERANCE,
    ERROR,
    MAX_MAGNITUDE,
    MAX_SUBSTEPS,
    NODES,
    RELATIVE_TOLERANCE,
    STAGES,
)
from lagsplat_ns.dynamics.integrators import Integrator, integrator, is_adaptive
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.types import State

__all__ = ["Stepper"]

_FIXED_STEP_S = 1 / 240

Acceleration = Callable[[State, float], Float[Tensor, " d"]]
"""q'' of a state, so many signed seconds after the step began."""


class Stepper:
    """Advances a state through q'' = a(q, q', t) by any signed time, with step sizes found by local error control.

    Order five, error estimate of order four (Dormand-Prince). No substep exceeds `max_substep_s`. No state is kept
    between calls, so that the same call always gives bitwise the same state.

    method: "adaptive" as above, compiled where it can be; or any integrator by name (see `integrator`): those of
    the package and of torchdiffeq with fixed steps take steps of at most 1/240 s.

    Law: tests/test_simulator_laws.py, steps back undo steps forward.
    Source: Dormand and Prince, "A family of embedded Runge-Kutta formulae", 1980.
    Raises: ValueError for a name that no integrator has.
    """

    def __init__(self, max_substep_s: float = 1 / 30, method: str = "adaptive") -> None:
        self.max_substep_s = max_substep_s
        self.method = method
        self._integrator = None if method == "adaptive" else integrator(method)
        self._latest: tuple[Mechanism, CompiledMechanism | None] | None = None

    def compiled(self, mechanism: Mechanism) -> CompiledMechanism | None:
        """The compiled form of a mechanism that changes no more; None where it has none or is not to be used."""
        if self._integrator is not None:
            return None
        if self._latest is None or self._latest[0] is not mechanism:
            self._latest = (mechanism, compiled_of(mechanism))
        return self._latest[1]

    def advance_compiled(
        self,
        compiled: CompiledMechanism,
        state: State,
        dt: float,
        inputs: Float[Tensor, " m"] | None = None,
        input_slopes: Float[Tensor, " m"] | None = None,
        weight: Float[Tensor, " P4"] | None = None,
    ) -> State:
        """What `advance` gives for a mechanism, by kernels: under inputs that begin at `inputs` and change by
        `input_slopes` per second of time that runs forward, and a force on the motion vector m(q), tau = weight dm/dq.

        Raises: FloatingPointError as `advance` does.
        """
        prepare()
        none = np.zeros(0)
        first = none if inputs is None or not compiled.num_inputs else inputs.numpy()
        slopes = np.zeros(len(first)) if input_slopes is None else input_slopes.numpy()
        pull = none if weight is None else compiled.reduced_weight(weight.numpy())
        q, qd, left = advance(
            compiled.model, state.q.numpy(), state.qd.numpy(), float(dt), self.max_substep_s, first, slopes, pull
        )
        result = State(torch.from_numpy(q), torch.from_numpy(qd))
        if left > 0.0:
            raise _cannot_follow(result, dt, left)
        return result

    def advance(self, state: State, dt: float, acceleration: Acceleration) -> State:
        """The state `dt` seconds later, or earlier for dt < 0.

        Raises: FloatingPointError if the motion cannot be followed: it left the range of numbers or became stiffer
        than `MAX_SUBSTEPS` substeps resolve.
        """
        if self._integrator is not None:
            return self._by_name(self._integrator, state, dt, acceleration)
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
        raise _cannot_follow(State(y[:d], y[d:]), dt, left)

    def _by_name(self, step: Integrator, state: State, dt: float, acceleration: Acceleration) -> State:
        longest = self.max_substep_s if is_adaptive(self.method) else _FIXED_STEP_S
        count = max(math.ceil(abs(dt) / longest - 1e-9), 1)
        q, qd, h = state.q, state.qd, torch.full((1,), dt / count, dtype=state.q.dtype)

        def a(position: Tensor, rate: Tensor, t: Tensor) -> Tensor:
            return acceleration(State(position, rate), float(t))

        for k in range(count):
            try:
                new_q, new_qd = step(a, q, qd, torch.tensor(k * dt / count, dtype=torch.float64), h)
            except AssertionError as error:  # how torchdiffeq says that its steps have become too short
                raise _cannot_follow(State(q, qd), dt, abs(dt) * (1 - k / count)) from error
            if not float(torch.cat([new_q, new_qd]).abs().max()) <= MAX_MAGNITUDE:
                raise _cannot_follow(State(q, qd), dt, abs(dt) * (1 - k / count))
            q, qd = new_q, new_qd
        return State(q.clone(), qd.clone())


def _cannot_follow(state: State, dt: float, left: float) -> FloatingPointError:
    return FloatingPointError(
        f"The motion must stay finite, but {abs(dt) - left:.4g} s into a step of {dt:.4g} s it "
        f"could not be followed any more (q = {_short(state.q)}, q' = {_short(state.qd)}).\n"
        "  Go back with rest() or seek(), and use a smaller force or a shorter way back in time: backwards, "
        "damping amplifies every error."
    )


def _dormand_prince(
    y: Tensor, first: Tensor, h: float, slope: Callable[[Tensor, float], Tensor], begun: float
) -> tuple[Tensor, Tensor, float]:
    """The next y, its slope, and the local error over the tolerance."""
    slopes = [first]
    proposal = y
    for row, node in zip(STAGES, NODES, strict=True):
        weights = y.new_tensor(row) * h
        proposal = y + weights @ torch.stack(slopes)
        slopes.append(slope(proposal, begun + node * h))
    difference = (y.new_tensor(ERROR) * h) @ torch.stack(slopes)
    allowed = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * torch.maximum(y.abs(), proposal.abs())
    error = float((difference / allowed).abs().max())
    return proposal, slopes[-1], error if error == error else float("inf")


def _short(values: Tensor) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values.tolist()) + "]"
