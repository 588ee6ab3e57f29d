"""Identification of a mechanism from observed paths by multiple shooting."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from lagsplat_ns.dynamics.choices import Choices
from lagsplat_ns.dynamics.equilibrium import rest_state
from lagsplat_ns.dynamics.forms import Form, forms_of
from lagsplat_ns.dynamics.gauss_newton import ShootingFit
from lagsplat_ns.dynamics.identified import Identified
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.notes import MISFIT, describe
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.options import Budget, IdentifyOptions
from lagsplat_ns.dynamics.regression import start_by_regression
from lagsplat_ns.dynamics.selection import recenter
from lagsplat_ns.dynamics.spans import sliding_stride, undisturbed_segments
from lagsplat_ns.dynamics.windows import Windows

__all__ = ["IdentifyOptions", "identify"]

_WORTH = 10.0
"""misfit of the regression, over the least of all forms, beyond which a form is not tried ..."""
_POOR = 0.45
"""... if it is also above this: with densities that are not yet known, the right form may misfit a good deal"""
_NEARLY = 1.3
"""error of the forecast of a tail, over the least of all forms, up to which a simpler form is preferred"""
_GOOD_ENOUGH = 1.2
"""error of that forecast, over the noise, at which no further form is tried ..."""
_CLEARLY = 2.0
"""... unless its regression misfits by this much more than that of another: fast motion is easily taken for noise"""


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


@dataclass
class _Approach:
    """How far one form of the potential got: its mechanism and fit, and how well it forecasts a held-out tail."""

    form: Form
    mechanism: Mechanism
    segments: list[Segment]
    fit: ShootingFit
    windows: Windows
    soft_rms: float
    error: float


class _Identification(Choices):
    def run(self) -> Identified:
        options = self.options
        segments, fit, windows, soft_rms = self._best_form()
        # something that turns may be braked by nothing but dry friction, which no form has had so far
        is_smooth = soft_rms < (5 if not bool(torch.isfinite(self.periods).any()) else 1e3)
        if options.select_damping and not options.quick and is_smooth:
            fit, windows = self._select_damping(segments, fit, windows)
            fit, windows = self._select_inputs(segments, fit, windows)
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
        is_rough = not fit.residual_rms <= MISFIT  # NaN is rough, too
        if is_rough or self._ends_disturbed(segments):
            self.budget.allow(1.3)
            segments, fit, windows = self._start_from_recent(segments, fit, windows, is_rough)
        return self._result(segments, fit, windows)

    # ---- the form of the potential
    def _best_form(self) -> tuple[list[Segment], ShootingFit, Windows, float]:
        """The simplest form whose forecast of a held-out tail is nearly as good as that of the best one."""
        forms = forms_of(self.metric, self.d, self.options.quick)
        forms = [form for form in forms if not self.options.forms or form.name in self.options.forms]
        starts: list[tuple[Form, float]] = []
        for form in forms if len(forms) > 1 else []:
            self._take_form(form)
            starts.append(
                (form, start_by_regression(self.mechanism, self.paths, self.smoothed, self.whole, self.omega))
            )
        least = min((misfit for _, misfit in starts), default=0.0)
        worth = [form for form, misfit in starts if misfit <= max(_WORTH * least, _POOR)] or forms
        approaches: list[_Approach] = []
        misfits = dict(starts)
        for form in worth:
            approaches.append(self._approach(form))
            if approaches[-1].error <= _GOOD_ENOUGH and misfits.get(form, 0.0) <= _CLEARLY * max(least, 0.01):
                break
        best = min(approach.error for approach in approaches)
        chosen = next(approach for approach in approaches if approach.error <= _NEARLY * best)
        self.form, self.mechanism, self.tail_error = chosen.form, chosen.mechanism, chosen.error
        self.metric = chosen.mechanism.metric
        self.budget = Budget(self.budget.total)
        self.budget.used = 0.4 * self.budget.total
        self.budget.allow(0.8)
        return chosen.segments, chosen.fit, chosen.windows, chosen.soft_rms

    def _approach(self, form: Form) -> _Approach:
        """Regression, then windows that grow to the whole of every undisturbed stretch, for one form."""
        options, periods = self.options, self.options.window_periods
        self.budget = Budget(self.budget.total)
        self._take_form(form)
        start_by_regression(self.mechanism, self.paths, self.smoothed, self.whole, self.omega)
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
        if form.spring and not form.gravity and self._recenter(segments):
            fit.parameters = self.mechanism.parameter_vector()
        for length in periods[2:]:
            fit, windows = self._soft(segments, length, fit, windows, robust, 1.0)
        soft_rms = fit.residual_rms
        self.budget.allow(0.8)
        fit, windows = self._hard(segments, fit, windows)
        self.mechanism.set_vector(fit.parameters)
        error = None if options.quick else self._tail_error(segments, fit, windows)
        error = fit.residual_rms if error is None else error
        error = error if math.isfinite(error) else math.inf
        used = sum(segment.num_frames for segment in segments) / sum(whole.num_frames for whole in self.whole)
        mechanism = copy.deepcopy(self.mechanism)
        return _Approach(form, mechanism, segments, fit, windows, soft_rms, error / max(used, 1e-3))

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
            form=self.form.name,
        )
        result.paths = result.rolled_paths()
        result.notes = describe(result, self.tail_error, self.cut_note)
        return result
