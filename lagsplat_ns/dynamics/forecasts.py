"""Forecasts from many moments of one path, by a mechanism and by predictors that know no physics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lagsplat_ns.dynamics.identified import Identified
from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.dynamics.smoothing import smooth
from lagsplat_ns.types import State

__all__ = [
    "Predictor",
    "horizon_errors",
    "in_pieces",
    "linear_ode",
    "mechanism_predictor",
    "start_states",
    "starts_between",
]

_LEAST_ROWS = 32
_STAGES = (0.15, 0.4, 1.0)
"""parts of the stretch that are fitted, one after the other"""
_ITERATIONS = 5
_SHARES = (1.0, 0.3, 0.1, 0.02, 0.0)
"""parts of a Gauss-Newton step that are tried"""
_GUESS_SHARES = (0.06, 0.14, 0.3)
"""first parts of the stretch through which a parabola gives a state to begin with"""

Predictor = Callable[[State, Tensor, Tensor], Tensor]
"""(states [S, d] at times [S], seconds ahead [G]) to q [G, S, d]."""


def in_pieces(observed: ObservedPath, periods: float) -> list[ObservedPath]:
    """The training part in equal pieces of about so many typical swings; the held-out rows follow the last one."""
    n, times = observed.fitted_frames, observed.times_s
    s = smooth(times[:n], observed.q[:n])
    omega = float((s.qdd.std(dim=0) / s.qd.std(dim=0).clamp(min=1e-12)).max())  # counts for things that turn, too
    wanted = periods * 2 * math.pi / omega / float((times[n - 1] - times[0]) / (n - 1))  # rows
    count = max(min(round(n / wanted), n // _LEAST_ROWS), 1)
    edges = [round(k * n / count) for k in range(count + 1)]
    pieces = [
        ObservedPath(times[a:b], observed.q[a:b], observed.inputs) for a, b in zip(edges[:-2], edges[1:-1], strict=True)
    ]
    last = edges[-2]
    return [*pieces, ObservedPath(times[last:], observed.q[last:], observed.inputs, n - last)]


def _shifted(inputs: InputFunction | None, start_s: Tensor) -> InputFunction | None:
    """Inputs as functions of the time since each start: scalar times to [S, m]."""
    return None if inputs is None else lambda t: inputs(start_s + t)


def mechanism_predictor(identified: Identified, inputs: InputFunction | None) -> Predictor:
    """The identified mechanism, rolled with the steps that it was fitted with."""

    @torch.no_grad()
    def predict(start: State, start_s: Tensor, ahead_s: Tensor) -> Tensor:
        drive = _shifted(inputs, start_s)
        return rollout(identified.mechanism, start, ahead_s, inputs=drive, substeps=identified.substeps).q

    return predict


def linear_ode(observed: ObservedPath, num_inputs: int) -> Predictor:
    """q'' = A q + B q' + C u + e, its numbers by least squares on the smoothed training part."""
    n = observed.fitted_frames
    s = smooth(observed.times_s[:n], observed.q[:n])
    u = observed.inputs(observed.times_s[:n]) if num_inputs and observed.inputs else s.q.new_zeros(n, 0)
    design = torch.cat([s.q, s.qd, u, s.q.new_ones(n, 1)], dim=-1)
    size = design.abs().amax(0).clamp(min=1e-12)
    matrix = torch.linalg.lstsq(design / size, s.qdd, driver="gelsd").solution / size[:, None]

    @torch.no_grad()
    def predict(start: State, start_s: Tensor, ahead_s: Tensor) -> Tensor:
        drive = _shifted(observed.inputs, start_s) if num_inputs else None

        def slope(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
            u = drive(t) if drive is not None else q.new_zeros(*q.shape[:-1], 0)
            return torch.cat([q, qd, u, q.new_ones(*q.shape[:-1], 1)], dim=-1) @ matrix

        from lagsplat_ns.dynamics.integrators import rk4

        q, qd, path = start.q, start.qd, [start.q]
        for begin, end in zip(ahead_s[:-1], ahead_s[1:]):
            q, qd = rk4(slope, q, qd, begin, (end - begin)[None])
            path.append(q)
        return torch.stack(path)

    return predict


def starts_between(begin_s: float, end_s: float, horizon_s: float, count: int) -> list[float]:
    """At most `count` evenly spaced moments from which `horizon_s` seconds fit in; empty if they do not."""
    room = end_s - begin_s - horizon_s
    if room < 0:
        return []
    number = max(min(count, 1 + math.floor(4 * room / horizon_s)), 1)
    return [begin_s + room * k / max(number - 1, 1) for k in range(number)]


@torch.no_grad()
def start_states(
    identified: Identified, observed: ObservedPath, start_s: Float64[Tensor, " S"], past_s: float
) -> State:
    """States at given times, each fitted to nothing but the `past_s` seconds before it.

    The mechanism is rolled through that stretch from a start of its own, by Gauss-Newton.
    """
    times, frame_s = observed.times_s, float((observed.times_s[1:] - observed.times_s[:-1]).median())
    count = max(round(past_s / frame_s), 8)
    grid = torch.arange(count + 1, dtype=torch.float64) * frame_s
    begin_s = start_s - grid[-1]
    seen = _interpolated(times, observed.q, begin_s[:, None] + grid).movedim(1, 0)  # [G, S, d]
    d, num_starts = seen.shape[-1], len(start_s)
    guesses = []
    for share in _GUESS_SHARES:
        basis = (grid[: max(round(share * count), 6)] / grid[-1])[:, None] ** torch.arange(3)
        fit = torch.linalg.pinv(basis) @ seen[: basis.shape[0]].flatten(1)
        guesses.append(torch.cat([fit[0].view(-1, d), fit[1].view(-1, d) / grid[-1]], dim=-1))
    x = torch.cat(guesses)  # [S, 2 d] of every guess
    begin_s, seen = begin_s.repeat(len(guesses)), seen.repeat(1, len(guesses), 1)
    misfit = torch.full((len(x),), math.inf, dtype=torch.float64)
    predict = mechanism_predictor(identified, observed.inputs)
    probes = 1e-6 * identified.scales.state_probes
    shares, noise = torch.tensor(_SHARES, dtype=torch.float64), identified.noise
    for share in _STAGES:  # ever more of the stretch, so that a poor guess cannot end on another branch
        rows = max(round(share * count), min(6, count)) + 1
        ahead, sight = grid[:rows], seen[:rows]
        for _ in range(_ITERATIONS):
            states = x.expand(1 + 2 * d, -1, -1).clone()
            states[1:] += probes.diag()[:, None, :]
            q = predict(State(states[..., :d], states[..., d:]), begin_s, ahead)  # [G, 1 + 2 d, S, d]
            residual = ((q[:, 0] - sight) / noise).movedim(1, 0).flatten(1)  # [S, G d]
            slopes = ((q[:, 1:] - q[:, :1]) / probes[:, None, None] / noise).permute(2, 0, 3, 1).flatten(1, 2)
            size = slopes.square().sum(1).sqrt().clamp(min=1e-30)
            step = torch.linalg.lstsq((slopes / size[:, None]).nan_to_num(), residual.nan_to_num()[..., None])
            tried = x - shares[:, None, None] * (step.solution[..., 0] / size)  # [K, S, 2 d]
            miss = predict(State(tried[..., :d], tried[..., d:]), begin_s, ahead) - sight[:, None]
            misfit, best = (miss / noise).square().sum((0, -1)).nan_to_num(nan=math.inf).min(0)
            x = tried[best, torch.arange(len(best))]
    chosen = misfit.view(-1, num_starts).argmin(0) * num_starts + torch.arange(num_starts)
    x, begin_s = x[chosen], begin_s[chosen]
    end = rollout(
        identified.mechanism, State(x[:, :d], x[:, d:]), grid,
        inputs=_shifted(observed.inputs, begin_s), substeps=identified.substeps,
    )  # fmt: skip
    return State(end.q[-1], end.qd[-1])


@torch.no_grad()
def horizon_errors(
    predict: Predictor, start: State, start_s: Float64[Tensor, " S"], observed: ObservedPath, horizon_s: float
) -> Float[Tensor, " S"]:
    """Root mean square error over the seconds after each start, over the range of the training part.

    Averaged over coordinates in squares; infinite where a forecast leaves the range of numbers.
    """
    fitted = observed.q[: observed.fitted_frames]
    span = fitted.amax(0) - fitted.amin(0)
    frame_s = float((observed.times_s[1:] - observed.times_s[:-1]).median())
    grid = torch.arange(round(horizon_s / frame_s) + 1, dtype=torch.float64) * frame_s
    truth = _interpolated(observed.times_s, observed.q, start_s[:, None] + grid).movedim(1, 0)
    error = ((predict(start, start_s, grid) - truth) / span).square().mean(-1)  # [G, S]
    return error.mean(0).sqrt().nan_to_num(nan=math.inf)


def _interpolated(times_s: Tensor, values: Tensor, at_s: Tensor) -> Tensor:
    right = torch.searchsorted(times_s, at_s.contiguous()).clamp(1, len(times_s) - 1)
    share = ((at_s - times_s[right - 1]) / (times_s[right] - times_s[right - 1]))[..., None]
    return values[right - 1] + share * (values[right] - values[right - 1])
