"""The result of an identification: a mechanism, the paths it rolls, and how far both can be trusted."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lagsplat_ns.dynamics.gauss_newton import FitScales
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows, sensitivities

__all__ = ["Identified", "IdentifiedPath", "Linearization"]


@dataclass(frozen=True)
class IdentifiedPath:
    """One clip as the mechanism rolls it.

    times_s [T] seconds; q, qd [T, d]; is_used [T]: fitted frames outside disturbed spans; frames from num_train on are
    forecast. In disturbed spans q is the smoothed observation, since no physics holds there.
    """

    times_s: Float[Tensor, " T"]
    q: Float[Tensor, "T d"]
    qd: Float[Tensor, "T d"]
    is_used: Bool[Tensor, " T"]
    num_train: int
    disturbed_s: list[tuple[float, float]]


@dataclass(frozen=True)
class Linearization:
    """q(t; p) ~ q0 + S (p - p0) around the solution, per clip; p is the physics [n], then the segments' starts [2 d].

    p0 [n_p]; prior_mean, prior_spread [n_p] (infinite for starts); q0: one [T, d] per clip; slopes: one [T, d, n_p].
    """

    p0: Float[Tensor, " n_p"]
    prior_mean: Float[Tensor, " n_p"]
    prior_spread: Float[Tensor, " n_p"]
    q0: list[Tensor]
    slopes: list[Tensor]


@dataclass
class Identified:
    """A mechanism identified from observed paths.

    noise [d]: standard deviation of the observations; residual_rms: that of the fitted frames over the noise (1 is
    perfect); parameters [n_p]: physics, then q and qd at the start of every segment; notes: what a person should know;
    form: that of the potential.
    """

    mechanism: Mechanism
    observed: list[ObservedPath]
    segments: list[Segment]
    parameters: Float[Tensor, " n_p"]
    noise: Float[Tensor, " d"]
    residual_rms: float
    paths: list[IdentifiedPath]
    scales: FitScales
    substeps: int
    smoothed_states: list[Tensor]
    notes: list[str] = field(default_factory=list)
    form: str = "polynomial"

    @property
    def used_fraction(self) -> float:
        """Share of the fitted frames that follow the physics."""
        fitted = sum(path.fitted_frames for path in self.observed)
        return sum(segment.num_frames for segment in self.segments) / fitted

    @property
    def middle(self) -> Float[Tensor, " d"]:
        """The mean of the fitted frames."""
        return torch.cat([path.q[: path.fitted_frames] for path in self.observed]).mean(0)

    def forecast_error(self, observed: list[ObservedPath] | None = None) -> Float[Tensor, "K d"]:
        """RMS of forecast minus observation over the held-out frames, over the range of the fitted ones, per clip.

        `observed` may carry better values (a known truth) at the same times. NaN for a clip without held-out frames.
        """
        errors = []
        for path, seen in zip(self.paths, observed or self.observed):
            ahead = (path.q - seen.q)[path.num_train :]
            fitted = seen.q[: path.num_train]
            errors.append(ahead.square().mean(0).sqrt() / (fitted.amax(0) - fitted.amin(0)))
        return torch.stack(errors)

    def forecast_baselines(self) -> dict[str, Float[Tensor, "K d"]]:
        """The same error for two trivial forecasts: the last fitted frame frozen, and its velocity kept."""
        result: dict[str, list[Tensor]] = {"frozen": [], "constant_velocity": []}
        for path, seen, states in zip(self.paths, self.observed, self.smoothed_states):
            n, d = path.num_train, seen.q.shape[-1]
            ahead = (path.times_s[n:] - path.times_s[n - 1])[:, None]
            fitted = seen.q[:n]
            span = fitted.amax(0) - fitted.amin(0)
            for name, rate in (("frozen", 0.0), ("constant_velocity", 1.0)):
                guess = states[n - 1, :d] + rate * ahead * states[n - 1, d:]
                result[name].append((guess - seen.q[n:]).square().mean(0).sqrt() / span)
        return {name: torch.stack(values) for name, values in result.items()}

    # ---- joint refinement
    def _rolled_segments(self) -> list[Segment]:
        """The segments, each clip's last one extended over the held-out frames."""
        result = []
        for k, segment in enumerate(self.segments):
            is_last = k == len(self.segments) - 1 or self.segments[k + 1].clip != segment.clip
            total = self.observed[segment.clip].times_s.shape[0]
            result.append(replace(segment, end=total) if is_last else segment)
        return result

    def _windows(self) -> Windows:
        longest = max(segment.num_frames for segment in self._rolled_segments())
        return cut_windows(self.observed, self._rolled_segments(), longest, self.substeps)

    def _starts(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        twice = 2 * self.noise.shape[0]
        count = parameters.shape[0] - twice * len(self.segments)
        return parameters[:count], parameters[count:].view(-1, twice)

    @torch.no_grad()
    def linearization(self) -> Linearization:
        """How all paths move with physics and starts, for a refinement that sees more than q (the pictures)."""
        physics, starts = self._starts(self.parameters)
        windows, d = self._windows(), self.noise.shape[0]
        mean, spread = self.mechanism.parameter_prior()
        _, by_p, by_x = sensitivities(self.mechanism, physics, starts, windows, spread, self.scales.state_probes)
        n, twice = physics.shape[0], 2 * d
        slopes = [
            torch.zeros(path.times_s.shape[0], d, self.parameters.shape[0], dtype=torch.float64) for path in self.paths
        ]
        for w, segment in enumerate(self._rolled_segments()):
            rows, count = slice(segment.begin, segment.end), segment.num_frames
            slopes[segment.clip][rows, :, :n] = by_p[w, :count, :d]
            block = slice(n + w * twice, n + (w + 1) * twice)
            slopes[segment.clip][rows, :, block] = by_x[w, :count, :d]
        free = torch.zeros(starts.numel(), dtype=torch.float64)
        return Linearization(
            self.parameters.clone(),
            torch.cat([mean, free]),
            torch.cat([spread, free + float("inf")]),
            [path.q.clone() for path in self.paths],
            slopes,
        )

    @torch.no_grad()
    def with_parameters(self, parameters: Float[Tensor, " n_p"]) -> Identified:
        """The same identification with other physics and starts, its paths rolled anew."""
        physics, _ = self._starts(parameters)
        mechanism = copy.deepcopy(self.mechanism)
        mechanism.set_vector(physics)
        result = replace(self, mechanism=mechanism, parameters=parameters.clone())
        result.paths = result.rolled_paths()
        return result

    @torch.no_grad()
    def rolled_paths(self) -> list[IdentifiedPath]:
        """q and qd of every clip at all its times, by the present parameters."""
        _, starts = self._starts(self.parameters)
        windows, d = self._windows(), self.noise.shape[0]
        q, qd = roll_windows(self.mechanism, starts[:, :d], starts[:, d:], windows)
        values = [states[:, :d].clone() for states in self.smoothed_states]
        rates = [states[:, d:].clone() for states in self.smoothed_states]
        used = [torch.zeros(path.times_s.shape[0], dtype=torch.bool) for path in self.observed]
        for w, segment in enumerate(self._rolled_segments()):
            rows, count = slice(segment.begin, segment.end), segment.num_frames
            values[segment.clip][rows], rates[segment.clip][rows] = q[w, :count], qd[w, :count]
            used[segment.clip][segment.begin : self.segments[w].end] = True
        return [
            IdentifiedPath(path.times_s, values[k], rates[k], used[k], path.fitted_frames, _spans(path, used[k]))
            for k, path in enumerate(self.observed)
        ]


def _spans(path: ObservedPath, used: Tensor) -> list[tuple[float, float]]:
    """Stretches of fitted frames that are not used, in seconds."""
    spans, begin = [], None
    for frame in range(path.fitted_frames + 1):
        is_out = frame < path.fitted_frames and not bool(used[frame])
        if is_out and begin is None:
            begin = frame
        elif not is_out and begin is not None:
            spans.append((float(path.times_s[begin]), float(path.times_s[frame - 1])))
            begin = None
    return spans
