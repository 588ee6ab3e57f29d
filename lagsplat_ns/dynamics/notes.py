"""What a person should know about an identification, in plain words."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.equilibrium import rest_state, rest_states
from lagsplat_ns.dynamics.identified import Identified
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.parts import replaced, solve_positive_definite
from lagsplat_ns.dynamics.structure import structure_of

__all__ = ["MISFIT", "describe", "rest_states_of", "small_oscillations"]

MISFIT = 4.0
_STILL = 8.0
"""range of a coordinate, over its noise, below which it counts as still"""
_VISCOUS = torch.tensor([True, False, False])


def small_oscillations(mechanism: Mechanism, start: Float[Tensor, " d"]) -> list[tuple[float, float]]:
    """Period (s) and decay rate of the amplitude (1/s) of every mode about the rest state downhill of `start`.

    From the eigenvalues of the linearized equation of motion; overdamped modes have an infinite period.
    Raises: ArithmeticError if there is no rest state.
    """
    with torch.no_grad():
        rest = rest_state(mechanism, start)
        hessian = mechanism.potential_hessian(rest)
        d = rest.shape[0]
        mass = mechanism.mass_matrix(rest[None])[0]
        # Dry friction has no linear regime worth the name: leave it out of the rates.
        viscous = replaced(mechanism.damping, is_active=_VISCOUS)(torch.zeros_like(rest), mass / mechanism.mass_scale)
        damping = mechanism.damping_scale * viscous
        rows = torch.zeros(2 * d, 2 * d, dtype=rest.dtype)
        rows[:d, d:] = torch.eye(d, dtype=rest.dtype)
        for k in range(d):
            rows[d:, k] = -solve_positive_definite(mass, hessian[:, k])
            rows[d:, d + k] = -solve_positive_definite(mass, damping[:, k])
        values = torch.linalg.eigvals(rows)
    modes = [(float(v.imag), -float(v.real)) for v in values if float(v.imag) >= 0]
    modes.sort(reverse=True)
    return [(2 * math.pi / omega if omega > 0 else math.inf, decay) for omega, decay in modes[:d]]


def _excitation(identified: Identified) -> list[str]:
    """Which coordinates moved, over which range, and what cannot be known from that."""
    notes, mechanism = [], identified.mechanism
    seen = torch.cat([path.q[: path.fitted_frames] for path in identified.observed])
    low, high = seen.amin(0), seen.amax(0)
    d = seen.shape[1]
    ranges = ", ".join(f"{float(a):.3g} to {float(b):.3g}" for a, b in zip(low, high))
    if d > 1:
        notes.append(f"Range that was seen of each coordinate: {ranges}. Beyond it, only the form of the forces holds.")
    still = [str(i + 1) for i in range(d) if float(high[i] - low[i]) < _STILL * float(identified.noise[i])]
    if still:
        notes.append(
            f"Coordinate {', '.join(still)} hardly moved: its stiffness and damping are assumed, not seen. "
            "Film a clip in which it moves."
        )
    structure = structure_of(mechanism.metric, d)
    if len(structure.groups.unique()) > 1:
        notes.append(
            "Things that move independently were found: how heavy one is against another cannot be seen, so a push on "
            "each has a scale of its own; the picture's areas stand in."
        )
    if mechanism.has_gravity:
        right, up = mechanism.metric.gravity.tolist()
        notes.append(f"Gravity pulls with {math.hypot(right, up):.3g} scene units / s^2, shared by all parts.")
    elif identified.form == "free":
        notes.append("No force acts but damping and inputs: it does not return to any place.")
    return notes


def rest_states_of(identified: Identified) -> Float[Tensor, "R d"]:
    """The rest states downhill of where the thing was seen, deepest first: several where the clip shows them.

    Starts are the frames at which it moved least, and the extremes of every coordinate.
    Raises: ArithmeticError if there is none, as for a thing that falls.
    """
    states = torch.cat([s[: p.fitted_frames] for s, p in zip(identified.smoothed_states, identified.observed)])
    d = states.shape[1] // 2
    q, qd = states[:, :d], states[:, d:]
    size = (q.amax(0) - q.amin(0)).clamp(min=1e-12)
    slowest = (qd / size).square().sum(1).argsort()[: max(len(q) // 10, 1)][::3][:8]
    picks = torch.cat([slowest, q.argmin(0), q.argmax(0)])
    return rest_states(identified.mechanism, q[picks])


def describe(identified: Identified, tail_error: float | None, cut_note: str) -> list[str]:
    """Sentences on what was found, what was left out, and what not to trust."""
    notes = []
    try:
        for number, (period, decay) in enumerate(small_oscillations(identified.mechanism, identified.middle), 1):
            name = f"Mode {number}" if identified.noise.shape[0] > 1 else "Small motions"
            notes.append(f"{name}: period {period:.4g} s, amplitude falls by e in {1 / max(decay, 1e-9):.3g} s.")
        rests = rest_states_of(identified)
        if len(rests) > 1 and not bool(torch.isfinite(identified.mechanism.potential.periods).any()):
            listed = "; ".join(", ".join(f"{value:.3g}" for value in rest) for rest in rests.tolist())
            notes.append(f"It can come to rest in {len(rests)} states, deepest first: q = {listed}.")
    except ArithmeticError:
        notes.append("No rest state was found near the data.")
    notes += _excitation(identified)
    drag, dry = identified.mechanism.damping.active_kinds  # type: ignore[operator]
    if drag or dry:
        kind = "drag that grows with speed" if drag else "dry friction"
        notes.append(f"Damping includes {kind}, since a held-out tail of the fitted part asked for it.")
    for path in identified.paths:
        spans = [span for span in path.disturbed_s if span[1] > span[0]]
        if spans:
            listed = ", ".join(f"{a:.2f}-{b:.2f} s" for a, b in spans)
            notes.append(
                f"Left out, because the thing was disturbed there (a hand, a blow, a wall) or frames miss: {listed}."
            )
    if cut_note:
        notes.append(cut_note)
    number = sum(len(path.disturbed_s) for path in identified.paths)
    if identified.residual_rms > MISFIT or number > 4 or (tail_error is not None and tail_error > 30):
        tail = "" if tail_error is None else f"; forecasts of a held-out tail, by {tail_error:.0f} times"
        notes.append(
            "This does not move as one smooth mechanism does: "
            f"rollouts miss the path by {identified.residual_rms:.1f} times its noise{tail}. "
            "It may hit something, be touched, or need another coordinate. Forecasts and pushes are not reliable."
        )
    return notes
