"""Steps that stay finite and never gain energy by themselves, whatever the size of a push."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lagsplat_ns.dynamics.energy import kinetic_energy, total_energy
from lagsplat_ns.dynamics.integrators import Drive, driven_acceleration, rk4
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.types import State

__all__ = ["guarded_step"]

_MAX_HALVINGS = 6
_MAX_SUBSTEPS = 20_000
_ROUND_OFF = 1e-13


def guarded_step(
    mechanism: Mechanism,
    state: State,
    dt: float,
    generalized_force: Drive = None,
    inputs: Drive = None,
    time_s: float = 0.0,
    max_step_s: float = 1 / 120,
    max_travel: float = 0.2,
) -> State:
    """The state dt seconds later by rk4 with steps so short that q moves by at most `max_travel` ranges of the data.

    Without force and inputs and for dt > 0 energy must not rise: a substep in which it does is halved, and
    what is left after six halvings, or is mere round-off, is taken out of the speed, never the position.

    Law: tests/laws/test_dynamics_bounded.py.
    Raises: FloatingPointError if the state is not finite, or so fast that 20 000 substeps do not resolve it.
    """
    a = driven_acceleration(mechanism, generalized_force, inputs)
    decays = generalized_force is None and inputs is None and dt > 0
    scale = getattr(mechanism.potential, "scale", None)
    q, qd, t, left, substeps = state.q, state.qd, time_s, abs(dt), 0
    energy = total_energy(mechanism, State(q, qd)) if decays else None
    while left > 1e-12:
        speed = float((qd.abs() / scale if scale is not None else qd.abs()).max())
        substeps += 1
        if not math.isfinite(speed) or substeps > _MAX_SUBSTEPS:
            raise FloatingPointError(
                f"A motion must stay finite and resolvable, but {abs(dt) - left:.4g} s into a step of {dt:.4g} s the "
                f"largest rate was {speed:.4g} ranges per second.\n  Use a smaller force or a shorter step."
            )
        size = min(left, max_step_s, max_travel / max(speed, 1e-12))
        for halving in range(_MAX_HALVINGS + 1):
            h = torch.full((1,), math.copysign(size, dt), dtype=q.dtype)
            new_q, new_qd = rk4(a, q, qd, torch.tensor(t, dtype=torch.float64), h)
            if energy is None:
                break
            new_energy = total_energy(mechanism, State(new_q, new_qd))
            if bool((new_energy <= energy).all()):
                energy = new_energy
                break
            rise = (new_energy - energy).max()
            if halving == _MAX_HALVINGS or float(rise) < _ROUND_OFF * float(new_energy.abs().max() + 1):
                new_qd, energy = _without_gain(mechanism, State(new_q, new_qd), energy)
                break
            size *= 0.5
        q, qd, t, left = new_q, new_qd, t + math.copysign(size, dt), left - size
    return State(q, qd)


def _without_gain(mechanism: Mechanism, state: State, energy: Tensor) -> tuple[Tensor, Tensor]:
    """Rates slowed down so that the energy is not above `energy`, and the energy then."""
    kinetic = kinetic_energy(mechanism, state)
    excess = (total_energy(mechanism, state) - energy).clamp(min=0)
    factor = (1 - excess / kinetic.clamp(min=1e-300)).clamp(min=0).sqrt()
    qd = state.qd * factor[..., None]
    return qd, torch.minimum(energy, total_energy(mechanism, State(state.q, qd)))
