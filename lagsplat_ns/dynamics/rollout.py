"""Rollouts: the states of a mechanism at many times from one start."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.guard import guarded_step
from lagsplat_ns.dynamics.integrators import Drive, driven_acceleration, integrator
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.types import State

__all__ = ["rollout"]


def rollout(
    mechanism: Mechanism,
    start: State,
    times_s: Float[Tensor, " T"],
    generalized_force: Drive = None,
    inputs: Drive = None,
    substeps: int = 1,
    breakpoints_s: Sequence[float] = (),
    method: str = "rk4",
) -> State:
    """States at `times_s`, q and qd [T, *B, d], from the state `start` [*B, d] at times_s[0].

    Times may run in either direction, evenly or not. Each interval is cut at `breakpoints_s`, the times at which forces
    or inputs jump, and every piece takes `substeps` steps; method "guarded" chooses them itself (see `guarded_step`).
    Values exactly at a breakpoint are asked a hair inside the piece: a force of 1 for t in [0.2, 0.5) acts just there.
    """
    q, qd = start.q, start.qd
    path, rates = [q], [qd]
    advance = None if method == "guarded" else integrator(method)
    times = [float(t) for t in times_s]
    for begin, end in zip(times[:-1], times[1:]):
        low, high = min(begin, end), max(begin, end)
        cuts = sorted({b for b in breakpoints_s if low < b < high}, reverse=end < begin)
        edges = [begin, *cuts, end]
        for left, right in zip(edges[:-1], edges[1:]):
            force = _inside(generalized_force, left, right)
            driven = _inside(inputs, left, right)
            if advance is None:
                state = guarded_step(mechanism, State(q, qd), right - left, force, driven, left)
                q, qd = state.q, state.qd
                continue
            a = driven_acceleration(mechanism, force, driven)
            h = torch.full((1,), (right - left) / substeps, dtype=q.dtype, device=q.device)
            for k in range(substeps):
                t = torch.tensor(left + k * float(h), dtype=torch.float64, device=q.device)
                q, qd = advance(a, q, qd, t, h)
        path.append(q)
        rates.append(qd)
    return State(torch.stack(path), torch.stack(rates))


def _inside(drive: Drive, left: float, right: float) -> Drive:
    """A function of time seen from within a piece, so that its ends belong to the piece."""
    if not callable(drive):
        return drive
    low, high = min(left, right), max(left, right)
    margin = 1e-9 * max(high - low, 1e-9)
    return lambda t: drive(t.clamp(low + margin, high - margin))
