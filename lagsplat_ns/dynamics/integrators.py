"""Integrators: one step of q'' = a(q, q', t) each, with its order, for any sign of the step.

Every function maps (a, q, qd, t, h) to (q, qd) at t + h; h is a number or a tensor that broadcasts against q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import no_type_check

import torch
from torch import Tensor

from lagsplat_ns.dynamics.equations import acceleration
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.types import State

__all__ = ["ORDERS", "Drive", "integrator", "is_adaptive", "rk4", "semi_implicit_euler", "step", "velocity_verlet"]

Acceleration = Callable[[Tensor, Tensor, Tensor], Tensor]
Integrator = Callable[[Acceleration, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Drive = Tensor | Callable[[Tensor], Tensor] | None
"""A force or an input: constant, a function of the time in seconds (vectorized over leading axes), or absent."""

ORDERS = {"rk4": 4, "velocity_verlet": 2, "semi_implicit_euler": 1}
_MAX_ITERATIONS = 50


@no_type_check  # in the innermost loop
def rk4(a: Acceleration, q: Tensor, qd: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The classical Runge-Kutta step. Order 4; back and forth returns to the start up to O(h^5).

    Law: tests/laws/test_integrators.py.
    """
    half = 0.5 * h
    a1 = a(q, qd, t)
    v2 = qd + half * a1
    a2 = a(q + half * qd, v2, t + half.squeeze(-1))
    v3 = qd + half * a2
    a3 = a(q + half * v2, v3, t + half.squeeze(-1))
    v4 = qd + h * a3
    a4 = a(q + h * v3, v4, t + h.squeeze(-1))
    sixth = h / 6
    return q + h * (qd + sixth * (a1 + a2 + a3)), qd + sixth * (a1 + 2 * (a2 + a3) + a4)


@no_type_check  # in the innermost loop
def velocity_verlet(a: Acceleration, q: Tensor, qd: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric Verlet step; the rate at the end is implicit where forces depend on it. Order 2.

    Symmetric: a step by -h undoes a step by h to round-off, damped or not.
    Law: tests/laws/test_integrators.py.
    """
    middle = qd + 0.5 * h * a(q, qd, t)
    q = q + h * middle
    end = t + h.squeeze(-1)
    return q, _fixed_point(lambda rate: middle + 0.5 * h * a(q, rate, end), middle)


@no_type_check  # in the innermost loop
def semi_implicit_euler(a: Acceleration, q: Tensor, qd: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """q' += h a(q, q'), q += h q'; for h < 0 the adjoint, which undoes a forward step to round-off. Order 1.

    Law: tests/laws/test_integrators.py.
    """
    if bool((h >= 0).all()):
        qd = qd + h * a(q, qd, t)
        return q + h * qd, qd
    q = q + h * qd
    start = t + h.squeeze(-1)
    return q, _fixed_point(lambda rate: qd + h * a(q, rate, start), qd)


@no_type_check  # in the innermost loop
def _fixed_point(update: Callable[[Tensor], Tensor], guess: Tensor) -> Tensor:
    for _ in range(_MAX_ITERATIONS):
        value = update(guess)
        change = (value - guess).abs().max()
        guess = value
        if not change > 2e-16 * value.abs().max():
            break
    return guess


_FIXED_STEP: dict[str, Integrator] = {
    "rk4": rk4,
    "velocity_verlet": velocity_verlet,
    "semi_implicit_euler": semi_implicit_euler,
}


def integrator(name: str, rtol: float = 1e-9, atol: float = 1e-10) -> Integrator:
    """The integrator of a name: one of `ORDERS`, or any solver of torchdiffeq such as "dopri5".

    Raises: ValueError for a name that neither knows.
    """
    if name in _FIXED_STEP:
        return _FIXED_STEP[name]
    import torchdiffeq
    from torchdiffeq._impl.odeint import SOLVERS

    if name not in SOLVERS:
        raise ValueError(
            f"`integrator` must be one of {', '.join(_FIXED_STEP)} or a solver of torchdiffeq ({', '.join(SOLVERS)}), "
            f"but is {name!r}.\n  Use the default, rk4."
        )

    ends_exactly = is_adaptive(name)

    def adapter(a: Acceleration, q: Tensor, qd: Tensor, t: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        # Time runs over [0, 1] in units of h, so that batches with different steps share one solve.
        def slope(share: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            position, rate = state
            return h * rate, h * a(position, rate, t + (share * h).squeeze(-1))

        span = torch.tensor([0.0, 1.0], dtype=q.dtype)
        # The last step must end where the span does: beyond its end the solver would interpolate, which errs more.
        options = {"step_t": span[1:]} if ends_exactly else None
        path, rates = torchdiffeq.odeint(slope, (q, qd), span, method=name, rtol=rtol, atol=atol, options=options)
        return path[-1], rates[-1]

    return adapter


def is_adaptive(name: str) -> bool:
    """Whether a solver of torchdiffeq finds its own step sizes."""
    from torchdiffeq._impl.odeint import SOLVERS
    from torchdiffeq._impl.solvers import AdaptiveStepsizeODESolver

    return name not in _FIXED_STEP and name in SOLVERS and issubclass(SOLVERS[name], AdaptiveStepsizeODESolver)


@no_type_check  # in the innermost loop
def driven_acceleration(mechanism: Mechanism, generalized_force: Drive = None, inputs: Drive = None) -> Acceleration:
    """a(q, q', t) of a mechanism under a force and inputs, each constant or a function of time."""

    def at(drive: Drive, t: Tensor) -> Tensor | None:
        return drive(t) if callable(drive) else drive

    def a(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
        return acceleration(mechanism, q, qd, at(generalized_force, t), at(inputs, t))

    return a


def step(
    mechanism: Mechanism,
    state: State,
    dt: float,
    generalized_force: Drive = None,
    inputs: Drive = None,
    time_s: float = 0.0,
    method: str = "rk4",
    substeps: int = 1,
) -> State:
    """The state dt seconds later, or earlier for dt < 0, in `substeps` equal steps.

    Functions of time are asked at the integrator's own times, beginning with `time_s`. See `guarded_step` for pushes of
    any size.
    """
    a = driven_acceleration(mechanism, generalized_force, inputs)
    advance = integrator(method)
    q, qd = state.q, state.qd
    h = torch.full((1,), dt / substeps, dtype=q.dtype, device=q.device)
    t = torch.full((), time_s, dtype=torch.float64, device=q.device)
    for _ in range(substeps):
        q, qd = advance(a, q, qd, t, h)
        t = t + dt / substeps
    return State(q, qd)
