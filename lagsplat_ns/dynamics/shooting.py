"""Identification of a mechanism from observed paths by multiple shooting."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import nn

from lagsplat_ns.dynamics.equilibrium import rest_state
from lagsplat_ns.dynamics.gauss_newton import ShootingFit, physics_information
from lagsplat_ns.dynamics.identified import Identified
from lagsplat_ns.dynamics.notes import MISFIT, describe
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.options import IdentifyOptions
from lagsplat_ns.dynamics.recent import RecentFits
from lagsplat_ns.dynamics.regression import start_by_regression
from lagsplat_ns.dynamics.selection import drop_unsupported_terms, recenter
from lagsplat_ns.dynamics.spans import sliding_stride, undisturbed_segments
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows

__all__ = ["IdentifyOptions", "identify"]


def identify(
    observed: list[ObservedPath],
    metric: nn.Module,
    options: IdentifyOptions | None = None,
    num_inputs: int = 0,
) -> Identified:
    """The mechanism in a given metric that best explains the observed paths.

    Weak-form regression, then multiple shooting with windows that grow to the whole of every undisturbed stretch. The
    held-out frames of a path are never looked at. Several clips of one thing share the physics.

    Raises: ValueError if clips differ in their number of coordinates, or inputs are missing; ArithmeticError if nothing
    moves or no fit is finite.
    """
    _check(observed, num_inputs)
    with torch.no_grad():
        return _Identification(observed, metric, options or IdentifyOptions(), num_inputs).run()


def _check(observed: list[ObservedPath], num_inputs: int) -> None:
    if not observed or len({path.q.shape[-1] for path in observed}) != 1:
        raise ValueError(
            f"Clips of one thing must have the same coordinates, but have {[path.q.shape[-1] for path in observed]}.\n"
            "  Pass one or more paths of equal dimension."
        )
    if num_inputs and any(path.inputs is None for path in observed):
        raise ValueError(
            f"Every clip needs its inputs when num_inputs is {num_inputs}, but some have none.\n"
            "  Pass `inputs` with every ObservedPath, or num_inputs=0."
        )


class _Identification(RecentFits):
    def run(self) -> Identified:
        options, periods = self.options, self.options.window_periods
        start_by_regression(self.mechanism, self.paths, self.smoothed, self.whole)
        segments, robust = self.whole, options.find_disturbed
        fit, windows = self._soft(segments, periods[0], None, None, robust, 0.3)
        fit, windows = self._soft(segments, periods[1], fit, windows, robust, 0.3)
        if robust:
            self.budget.allow(0.45)
            for _ in range(1 if options.quick else 3):
                if self.budget.is_spent:
                    break
                found = self._undisturbed()
                if not found or found == segments:
                    break
                segments = found
                fit, windows = self._soft(segments, periods[1], fit, windows, True, 0.3)
        if self._recenter(segments):
            fit.parameters = self.mechanism.parameter_vector()
        for length in periods[2:]:
            fit, windows = self._soft(segments, length, fit, windows, robust, 1.0)
        soft_rms = fit.residual_rms
        is_smooth = soft_rms < 5
        self.budget.allow(0.8)
        fit, windows = self._hard(segments, fit, windows)
        if options.select_damping and not options.quick and is_smooth:
            fit, windows = self._select_damping(segments, fit, windows)
        if is_smooth and not self.budget.is_spent:
            segments, fit, windows = self._shorter_where_needed(segments, fit, windows, soft_rms)
        self.budget.allow(1.0)
        fit, windows = self._hard(segments, fit, windows, 1e-3 if options.quick else 1e-5)
        self.mechanism.set_vector(fit.parameters)
        self._noise_from_residual(fit)
        if not options.quick and not self.budget.is_spent:
            fit, windows = self._simplify(segments, fit, windows)
            fit, windows = self._hard(segments, fit, windows, 1e-6)
            self.mechanism.set_vector(fit.parameters)
        is_rough = fit.residual_rms > MISFIT
        if is_rough or self._ends_disturbed(segments):
            self.budget.allow(1.3)
            segments, fit, windows = self._start_from_recent(segments, fit, windows, is_rough)
        return self._result(segments, fit, windows)

    def _ends_disturbed(self, segments: list[Segment]) -> bool:
        ends = {segment.clip: segment.end for segment in segments}
        return any(ends.get(whole.clip, 0) < whole.end for whole in self.whole)

    def _recenter(self, segments: list[Segment]) -> bool:
        """Moves the origin of the potential's expansion to the rest state, where there is one within the path."""
        samples = torch.cat([self.smoothed[s.clip].q[s.begin : s.end] for s in segments])
        low, high = samples.amin(0), samples.amax(0)
        try:
            rest = rest_state(self.mechanism, samples.mean(0), 50)
        except ArithmeticError:
            return False
        margin = 0.1 * (high - low)
        if not bool(((rest > low + margin) & (rest < high - margin)).all()):
            return False
        recenter(self.mechanism, rest, samples)
        return True

    def _shorter_where_needed(
        self, segments: list[Segment], fit: ShootingFit, windows: Windows, soft_rms: float
    ) -> tuple[list[Segment], ShootingFit, Windows]:
        """Halves segments while one rollout explains them much worse than joined windows (chaos, model error)."""
        shortest = max(2 * round(self._frames_per_period()), 24)
        for _ in range(3):
            if self.budget.is_spent or fit.residual_rms <= max(1.5, 2 * soft_rms):
                break
            halves: list[Segment] = []
            for segment in segments:
                middle = (segment.begin + segment.end) // 2
                if segment.num_frames >= 2 * shortest:
                    halves += [replace(segment, end=middle), replace(segment, begin=middle)]
                else:
                    halves.append(segment)
            if halves == segments:
                break
            segments = halves
            fit, windows = self._hard(segments, fit, windows)
            longest = max(segment.num_frames for segment in segments) / self._frames_per_period()
            self.cut_note = (
                f"One rollout does not explain the whole clip; it was fitted in pieces of {longest:.1f} periods."
            )
        self.mechanism.set_vector(fit.parameters)
        return segments, fit, windows

    def _noise_from_residual(self, fit: ShootingFit) -> None:
        """From here on, noise is what the fit leaves."""
        factor = max(min(fit.residual_rms, 3.0), 0.05)
        self.set_noise(self.noise * factor)
        self.residual_after_noise = fit.residual_rms / factor

    def _simplify(self, segments: list[Segment], fit: ShootingFit, windows: Windows) -> tuple[ShootingFit, Windows]:
        information = physics_information(self.mechanism, fit, windows, self.scales)
        if not bool(torch.isfinite(information).all()):  # the fit is at the edge of divergence: nothing to judge
            return fit, windows
        count = int(windows.counts.sum()) * self.d
        prior = self.mechanism.potential.prior_of_term.clone()
        dropped = drop_unsupported_terms(self.mechanism, fit.parameters, information, count)
        if dropped:
            simpler = ShootingFit(self.mechanism.parameter_vector(), fit.starts)
            simpler, simpler_windows = self._hard(segments, simpler, windows, 1e-5)
            # The test is a linear estimate: if the frames disagree with it, everything stays.
            allowed = self.residual_after_noise**2 + 2 * len(dropped) * math.log(count) / count
            if simpler.residual_rms**2 > allowed:
                self.mechanism.potential.prior_of_term.copy_(prior)
                self.mechanism.set_vector(fit.parameters)
            else:
                fit, windows = simpler, simpler_windows
                self.mechanism.set_vector(fit.parameters)
        return fit, windows

    def _tail_error(self, segments: list[Segment], fit: ShootingFit, windows: Windows) -> float | None:
        """RMS over the noise of a forecast of the last quarter of each clip's last segment, fitted without it."""
        inner, tails = [], []
        for k, segment in enumerate(segments):
            is_last = k == len(segments) - 1 or segments[k + 1].clip != segment.clip
            if is_last and segment.num_frames >= max(2 * self._frames_per_period(), 40):
                tails.append(segment)
                segment = replace(segment, end=segment.begin + round(0.75 * segment.num_frames))
            inner.append(segment)
        if not tails:
            return None
        inner_fit, inner_windows = self._hard(inner, fit, windows)
        firsts = inner_windows.first_of_segment.nonzero()[:, 0].tolist()
        errors = []
        for segment in tails:
            row = firsts[next(k for k, s in enumerate(inner) if s.clip == segment.clip and s.begin == segment.begin)]
            whole = cut_windows(self.paths, [segment], segment.num_frames, self._substeps())
            start = inner_fit.starts[row : row + 1]
            mechanism = self.mechanism.with_vector(inner_fit.parameters[None])
            q, _ = roll_windows(mechanism, start[:, : self.d], start[:, self.d :], whole)
            ahead = round(0.75 * segment.num_frames)
            errors.append(((q - whole.observed) / self.noise)[0, ahead:])
        value = float(torch.cat(errors).square().mean().sqrt())
        return value if math.isfinite(value) else float("inf")

    def _select_damping(
        self, segments: list[Segment], fit: ShootingFit, windows: Windows
    ) -> tuple[ShootingFit, Windows]:
        """Switches drag and dry friction on, one after the other, while the held-out tail gets clearly better by it."""
        damping = self.mechanism.damping
        self.mechanism.set_vector(fit.parameters)
        best = self.tail_error = self._tail_error(segments, fit, windows)
        if best is None:
            return fit, windows
        viscous, speed = float(damping.log_rates[0].exp()), self._typical_speed()
        sizes = {1: 0.3 * viscous / speed, 2: 0.1 * viscous * speed}
        for kind, size in sizes.items():
            damping.log_rates[kind] = damping.prior_log_rates[kind] = math.log(max(size, 1e-12))
        while sizes and best > 1.5 and not self.budget.is_spent:
            errors = {}
            for kind in sizes:
                damping.is_active[kind] = True
                trial = ShootingFit(self.mechanism.parameter_vector(), fit.starts)
                errors[kind] = self._tail_error(segments, trial, windows) or math.inf
                damping.is_active[kind] = False
            chosen = min(errors, key=lambda kind: errors[kind])
            if errors[chosen] > (0.85 if len(sizes) == 2 else 0.5) * best:  # two kinds need a strong reason
                break
            damping.is_active[chosen] = True
            del sizes[chosen]
            best = self.tail_error = errors[chosen]
            start = ShootingFit(self.mechanism.parameter_vector(), fit.starts)
            fit, windows = self._hard(segments, start, windows)
            self.mechanism.set_vector(fit.parameters)
        return fit, windows

    def _undisturbed(self) -> list[Segment]:
        width = max(round(0.5 * self._frames_per_period()), 12)
        found: list[Segment] = []
        for whole in self.whole:
            steps = (width - 1) * self._substeps()
            num_windows = whole.num_frames // sliding_stride(self.d)
            self.budget.spend(5 * steps, num_windows * (1 + 2 * self.d), self.d)
            found += undisturbed_segments(
                self.mechanism,
                self.paths[whole.clip],
                whole,
                self._states(whole.clip),
                self.scales,
                width,
                self._substeps(),
            )
        return found

    def _result(self, segments: list[Segment], fit: ShootingFit, windows: Windows) -> Identified:
        starts = fit.starts[windows.first_of_segment]
        states = []
        for path, s in zip(self.full, self.full_smoothed):
            state = torch.zeros(path.times_s.shape[0], 2 * self.d, dtype=torch.float64)
            state[: path.fitted_frames] = torch.cat([s.q, s.qd], dim=-1)
            states.append(state)
        full = [replace(path, times_s=path.times_s.double(), q=path.q.double()) for path in self.full]
        stretched = [
            Segment(s.clip, s.begin * self.stride, min((s.end - 1) * self.stride + 1, full[s.clip].fitted_frames))
            for s in segments
        ]
        mechanism = copy.deepcopy(self.mechanism)
        mechanism.metric = copy.deepcopy(self.metric)
        result = Identified(
            mechanism=mechanism.requires_grad_(False),
            observed=full,
            segments=stretched,
            parameters=torch.cat([fit.parameters, starts.flatten()]),
            noise=self.noise,
            residual_rms=fit.residual_rms,
            paths=[],
            scales=self.scales,
            substeps=self._substeps(),
            smoothed_states=states,
        )
        result.paths = result.rolled_paths()
        result.notes = describe(result, self.tail_error, self.cut_note)
        return result
