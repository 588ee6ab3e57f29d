"""What a held-out tail of the fitted part decides: kinds of damping, kinds of inputs, terms that are not needed."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from lagsplat_ns.dynamics.gauss_newton import ShootingFit, physics_information
from lagsplat_ns.dynamics.inputs import InputKind
from lagsplat_ns.dynamics.observed import Segment
from lagsplat_ns.dynamics.recent import RecentFits
from lagsplat_ns.dynamics.selection import drop_unsupported_terms
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows

__all__ = ["Choices"]

_GOOD_TAIL = 1.5
"""error of the forecast of the tail, over the noise, from which on nothing more is asked for"""


class Choices(RecentFits):
    """Choices among kinds of physics, each by forecasts of frames that the fit has not seen."""

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
        free = self.mechanism.potential.free_weights.clone()
        dropped = drop_unsupported_terms(self.mechanism, fit.parameters, information, count)
        if dropped:
            simpler = ShootingFit(self.mechanism.parameter_vector(), fit.starts)
            simpler, simpler_windows = self._hard(segments, simpler, windows, 1e-5)
            # The test is a linear estimate: if the frames disagree with it, everything stays.
            allowed = self.residual_after_noise**2 + 2 * len(dropped) * math.log(count) / count
            if simpler.residual_rms**2 > allowed:
                self.mechanism.potential.free_weights.copy_(free)
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
        while sizes and best > _GOOD_TAIL and not self.budget.is_spent:
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

    def _select_inputs(
        self, segments: list[Segment], fit: ShootingFit, windows: Windows
    ) -> tuple[ShootingFit, Windows]:
        """Lets inputs depend on where the thing is, while the held-out tail gets clearly better by it."""
        inputs, best = self.mechanism.inputs, self.tail_error
        kinds: tuple[InputKind, ...] = ("potential",) if self.d == 1 else ("potential", "general")
        if inputs is None or best is None:
            return fit, windows
        self.mechanism.set_vector(fit.parameters)
        for kind in kinds:
            if best <= _GOOD_TAIL or self.budget.is_spent:
                break
            before = inputs.kind
            inputs.become(kind)
            trial = ShootingFit(self.mechanism.parameter_vector(), fit.starts)
            error = self._tail_error(segments, trial, windows)
            if error is None or not error < 0.8 * best:
                inputs.become(before)
                self.mechanism.set_vector(fit.parameters)
                continue
            best = self.tail_error = error
            fit, windows = self._hard(segments, trial, windows)
            self.mechanism.set_vector(fit.parameters)
        return fit, windows
