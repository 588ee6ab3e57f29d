"""Where a path is no smooth motion: forecasts that start from, and keep to, what it did last."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from lagsplat_ns.dynamics.fits import WindowFits
from lagsplat_ns.dynamics.forms import SPRING
from lagsplat_ns.dynamics.gauss_newton import ShootingFit
from lagsplat_ns.dynamics.observed import Segment
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows

__all__ = ["RecentFits"]

_GAIN = 0.7


class RecentFits(WindowFits):
    """Fits of the last stretch of every clip."""

    def _recent(self, segments: list[Segment], num_periods: float) -> list[Segment]:
        """The last frames of every clip, from its last disturbance on where that leaves enough of them."""
        length, result = max(round(num_periods * self._frames_per_period()), 16), []
        for whole in self.whole:
            begin = max(whole.end - length, whole.begin)
            last = [s for s in segments if s.clip == whole.clip]
            if last and last[-1].end == whole.end:
                begin = max(begin, min(last[-1].begin, whole.end - 12))
            elif last:
                begin = max(begin, whole.end - 12)
            result.append(replace(whole, begin=max(begin, 0)))
        return result

    def _start_from_recent(
        self, segments: list[Segment], fit: ShootingFit, windows: Windows, is_rough: bool
    ) -> tuple[list[Segment], ShootingFit, Windows]:
        """Segments whose last ones reach the end of the training part, with starts that fit what happened there.

        The physics stays, unless the path is rough and the recent motion is explained much better by physics of its
        own: then only that is kept.
        """
        recent = self._recent(segments, 2.5 if is_rough else 1.0)
        near, near_windows = self._hard(recent, fit, windows, 1e-4, fit_physics=False)
        if is_rough:
            own, own_windows = self._hard(recent, near, near_windows, 1e-4)
            if own.residual_rms < _GAIN * near.residual_rms and self._stays_in_range(own, own_windows, recent):
                self.mechanism.set_vector(own.parameters)
                self.cut_note = (
                    "One mechanism does not explain the whole clip; only its last "
                    f"{max(s.num_frames for s in recent) / self._frames_per_period():.1f} periods were fitted."
                )
                return recent, own, own_windows
            rate = self.mechanism.damping.log_rates
            for _ in range(3):  # more damping than was found, rather than a forecast that leaves the range
                if self._stays_in_range(near, near_windows, recent):
                    break
                rate[0] += math.log(4)
                near.parameters = self.mechanism.parameter_vector()
                near, near_windows = self._hard(recent, near, near_windows, 1e-3, fit_physics=False)
            if not self._stays_in_range(near, near_windows, recent):
                self._become_spring(recent)
                plain = self._start_fit(near_windows, self.mechanism.parameter_vector())
                plain, plain_windows = self._hard(recent, plain, near_windows, 1e-3, fit_physics=False)
                self.cut_note = "No mechanism explains the clip; a damped spring about its last positions stands in."
                return recent, plain, plain_windows
        joined = []
        for part in recent:
            joined += [
                replace(s, end=min(s.end, part.begin))
                for s in segments
                if s.clip == part.clip and min(s.end, part.begin) - s.begin >= 8
            ]
            joined.append(part)
        both = ShootingFit(near.parameters, near.starts)
        both, both_windows = self._hard(joined, both, near_windows, 1e-4, fit_physics=False)
        return joined, both, both_windows

    def _become_spring(self, recent: list[Segment]) -> None:
        """Physics that is bounded whatever happens: a damped spring of the path's own frequency."""
        potential, damping = self.mechanism.potential, self.mechanism.damping
        samples = torch.cat([self.smoothed[s.clip].q[s.begin : s.end] for s in recent])
        self._take_form(SPRING)
        potential.center.copy_(samples.mean(0))
        mass = self.mechanism.mass_matrix(potential.center[None])[0].diagonal()
        rows, columns = torch.tril_indices(self.d, self.d)
        factor = (self.omega * potential.scale * mass.sqrt()).diag()[rows, columns]
        potential.stiffness_factor.copy_(factor * potential.free_stiffness)
        potential.weights.zero_()
        damping.is_active[1:] = False
        damping.log_rates[0] = math.log(0.3 * self.omega)
        if self.d > 1:
            damping.set_friction(1e-6 * damping.prior_factor**2)

    def _stays_in_range(self, fit: ShootingFit, windows: Windows, recent: list[Segment]) -> bool:
        """Whether five periods from the end of the fit stay within what the recent frames span, and half more."""
        d = self.d
        for part in recent:
            observed = self.paths[part.clip]
            seen = observed.q[part.begin : part.end]
            middle, half = 0.5 * (seen.amax(0) + seen.amin(0)), 0.5 * (seen.amax(0) - seen.amin(0))
            half = torch.maximum(half, 6 * self.noise)
            frame_s = float((observed.times_s[1:] - observed.times_s[:-1]).median())
            count = part.num_frames + min(round(5 * self._frames_per_period()), 200)
            is_start = (windows.clip == part.clip) & (windows.frames[:, 0] == part.begin) & windows.first_of_segment
            row = int(is_start.nonzero()[0])
            whole = cut_windows(self.paths, [part], part.num_frames, self._substeps())
            ahead = replace(whole, dt=torch.full((1, count - 1), frame_s, dtype=torch.float64))
            moved = self.mechanism.with_vector(fit.parameters[None])
            q, _ = roll_windows(moved, fit.starts[row : row + 1, :d], fit.starts[row : row + 1, d:], ahead)
            if not bool(((q - middle).abs() <= 1.5 * half).all()):
                return False
        return True
