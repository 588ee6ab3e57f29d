"""Fits of a set of segments, by windows that are joined softly or exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from lagsplat_ns.dynamics.gauss_newton import ShootingFit, fit_windows
from lagsplat_ns.dynamics.observed import Segment
from lagsplat_ns.dynamics.setup import FitSetup
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows

__all__ = ["WindowFits"]


class WindowFits(FitSetup):
    """Soft and hard fits, each from the one before."""

    def _start_fit(self, windows: Windows, parameters: Tensor) -> ShootingFit:
        starts = torch.stack(
            [self._states(int(clip))[int(frame)] for clip, frame in zip(windows.clip, windows.frames[:, 0])]
        )
        return ShootingFit(parameters, starts)

    def _rewindow(self, fit: ShootingFit, old: Windows, new: Windows) -> ShootingFit:
        """Starts of new windows from the rolled states of old ones."""
        result = self._start_fit(new, fit.parameters)
        d = self.d
        q, qd = roll_windows(
            self.mechanism.with_vector(fit.parameters[None]), fit.starts[:, :d], fit.starts[:, d:], old
        )
        known = {}
        for w in range(old.num_windows):
            for k in range(int((old.dt[w] > 0).sum()) + 1):
                known.setdefault((int(old.clip[w]), int(old.frames[w, k])), torch.cat([q[w, k], qd[w, k]]))
        for w in range(new.num_windows):
            value = known.get((int(new.clip[w]), int(new.frames[w, 0])))
            if value is not None and bool(torch.isfinite(value).all()):
                result.starts[w] = value
        return result

    def _soft(
        self,
        segments: list[Segment],
        periods: float,
        fit: ShootingFit | None,
        old: Windows | None,
        robust: bool,
        gap: float,
    ) -> tuple[ShootingFit, Windows]:
        length = max(round(periods * self._frames_per_period()), 8)
        windows = cut_windows(self.paths, segments, length, self._substeps())
        if fit is None or old is None:
            start = self._start_fit(windows, self.mechanism.parameter_vector())
        else:
            start = self._rewindow(fit, old, windows)
        fit = fit_windows(
            self.mechanism,
            start,
            windows,
            self.scales,
            gap,
            is_robust=robust,
            max_iterations=self.max_iterations,
            tolerance=1e-2,
            budget=self.budget,
        )
        self.mechanism.set_vector(fit.parameters)
        return fit, windows

    def _hard(
        self, segments: list[Segment], fit: ShootingFit, old: Windows, tolerance: float = 1e-3, fit_physics: bool = True
    ) -> tuple[ShootingFit, Windows]:
        length = max(round(0.25 * self._frames_per_period()), 8)
        windows = cut_windows(self.paths, segments, length, self._substeps())
        start = self._rewindow(fit, old, windows)
        fit = fit_windows(
            self.mechanism,
            start,
            windows,
            self.scales,
            is_hard=True,
            fit_physics=fit_physics,
            max_iterations=self.max_iterations,
            tolerance=tolerance,
            budget=self.budget,
        )
        return fit, windows
