"""What every fit of an identification shares: training parts, their smoothed states, scales, time steps."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from lagsplat_ns.dynamics.forms import Form, admit, turning_periods
from lagsplat_ns.dynamics.gauss_newton import FitScales
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.options import Budget, IdentifyOptions
from lagsplat_ns.dynamics.regression import angular_frequency
from lagsplat_ns.dynamics.smoothing import Smoothed, noise_level, smooth
from lagsplat_ns.dynamics.structure import structure_of

__all__ = ["FitSetup"]


class FitSetup:
    """The mechanism to be fitted and the paths that it is fitted to."""

    def __init__(
        self, observed: list[ObservedPath], metric: nn.Module, options: IdentifyOptions, num_inputs: int
    ) -> None:
        self.options, self.full = options, observed
        self.d, self.num_inputs = observed[0].q.shape[-1], num_inputs
        self.cut_note = ""
        self.tail_error: float | None = None
        self.residual_after_noise = 1.0
        self.form = Form("polynomial")
        fitted = torch.cat([path.q[: path.fitted_frames] for path in observed]).double()
        low, high = fitted.amin(0), fitted.amax(0)
        self.range = high - low
        if float(self.range.max()) <= 0:
            raise ArithmeticError(
                f"A path must move to tell about forces, but q stays at {low.tolist()}.\n"
                "  Use a clip in which the thing moves."
            )
        self.range = self.range.clamp(min=1e-6 * float(self.range.max()))
        degree = options.degree or ((6 if self.d == 1 else 4) if options.quick else (8 if self.d == 1 else 6))
        self.metric = copy.deepcopy(metric)
        self.low, self.high = low, high
        self.structure = structure_of(metric, self.d)
        self.periods = turning_periods(self.structure, high - low, options.periodic)
        self.mechanism = Mechanism.polynomial(self.metric, self.d, degree, num_inputs)
        self.mechanism.damping.belong_to(self.structure)
        self.budget = Budget(options.max_rollouts or (70 if options.quick else 260))
        self.max_iterations = min(options.max_iterations, 8) if options.quick else options.max_iterations
        for part in (self.mechanism.potential, self.mechanism.inputs):
            if part is not None:
                part.center.copy_(0.5 * (low + high))
                # a coordinate that turns is measured in radians, not in how far it went
                part.scale.copy_(torch.minimum(0.5 * self.range, self.periods / (2 * math.pi)))
        train = [self._training_part(path) for path in observed]
        self.full_smoothed = [smooth(path.times_s, path.q) for path in train]
        noise = torch.stack([noise_level(path.times_s, path.q) for path in train]).amax(0)
        whole = [Segment(k, 0, path.fitted_frames) for k, path in enumerate(train)]
        self.omega = angular_frequency(self.full_smoothed, whole, self.periods)
        self.stride = self._stride(train)
        self.paths, self.smoothed = train, self.full_smoothed
        if self.stride > 1:
            self.paths = [
                ObservedPath(path.times_s[:: self.stride], s.q[:: self.stride], path.inputs)
                for path, s in zip(train, self.full_smoothed)
            ]
            self.smoothed = [
                Smoothed(s.q[:: self.stride], s.qd[:: self.stride], s.qdd[:: self.stride]) for s in self.full_smoothed
            ]
        self.whole = [Segment(k, 0, path.fitted_frames) for k, path in enumerate(self.paths)]
        self.set_noise(noise)
        self.mechanism.damping.slow_speed.fill_(0.005 * self._typical_speed())

    def _take_form(self, form: Form) -> None:
        """Starts over with the terms of a form."""
        self.form = form
        self.mechanism.metric = self.metric
        admit(self.mechanism, form, self.structure, self.periods)

    @staticmethod
    def _training_part(path: ObservedPath) -> ObservedPath:
        n = path.fitted_frames
        return ObservedPath(path.times_s[:n].double(), path.q[:n].double(), path.inputs)

    def _stride(self, paths: list[ObservedPath]) -> int:
        """Every how many frames to fit, where frames come much faster than anything moves; 32 frames or more stay."""
        frame_s = min(float((path.times_s[1:] - path.times_s[:-1]).median()) for path in paths)
        shortest = min(path.fitted_frames for path in paths)
        return max(min(int(2 * math.pi / self.omega / frame_s / 60), shortest // 32), 1)

    def _typical_speed(self) -> float:
        total, count = 0.0, 0
        for s in self.smoothed:
            mass = self.mechanism.mass_matrix(s.q)
            total += float(torch.einsum("ti,tij,tj->", s.qd, mass, s.qd))
            count += s.q.shape[0]
        return math.sqrt(total / count)

    def set_noise(self, noise: Tensor) -> None:
        noise = torch.maximum(noise, self.options.min_noise * self.range)
        half = 0.5 * self.range
        self.noise = noise
        self.scales = FitScales(noise, noise * self.omega, torch.cat([half, half * self.omega]))

    def _substeps(self) -> int:
        """Steps per frame: enough for the fastest oscillation anywhere along the path."""
        frame_s = max(float((path.times_s[1:] - path.times_s[:-1]).median()) for path in self.paths)
        samples = torch.cat([s.q for s in self.smoothed])
        fastest = self.omega**2
        for q in samples[:: max(len(samples) // 8, 1)]:
            ratio = torch.linalg.solve(self.mechanism.mass_matrix(q[None])[0], self.mechanism.potential_hessian(q))
            fastest = max(fastest, float(torch.linalg.eigvals(ratio.nan_to_num(posinf=0, neginf=0)).abs().max()))
        largest, most = (0.35, 4) if self.options.quick else (0.2, 10)  # radians per substep
        return min(max(math.ceil(math.sqrt(fastest) * frame_s / largest), 1), most)

    def _frames_per_period(self) -> float:
        frame_s = max(float((path.times_s[1:] - path.times_s[:-1]).median()) for path in self.paths)
        return 2 * math.pi / self.omega / frame_s

    def _states(self, clip: int) -> Tensor:
        return torch.cat([self.smoothed[clip].q, self.smoothed[clip].qd], dim=-1)
