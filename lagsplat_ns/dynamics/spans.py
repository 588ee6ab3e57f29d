"""Disturbed spans: where a path does not follow the physics that explains the rest of it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lagsplat_ns.dynamics.gauss_newton import FitScales
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows

__all__ = ["sliding_stride", "undisturbed_segments", "window_misfit"]

_LIMIT = 3.0


def sliding_stride(latent_dim: int) -> int:
    """Every how many frames a window is tried: several coordinates cost more."""
    return 1 if latent_dim == 1 else 3


def _sliding_windows(path: ObservedPath, segment: Segment, width: int, substeps: int, every: int) -> Windows:
    """One window of `width` frames around every so many frames, shifted inward at the ends."""
    begin = (torch.arange(0, segment.num_frames, every) - width // 2).clamp(0, segment.num_frames - width)
    begin = begin + segment.begin
    frames = begin[:, None] + torch.arange(width)
    times = path.times_s[frames]
    num = frames.shape[0]
    whole = cut_windows([path], [replace(segment, clip=0)], segment.num_frames, substeps)
    flags = torch.zeros(num, dtype=torch.bool)
    return Windows(
        start_s=times[:, 0],
        dt=times[:, 1:] - times[:, :-1],
        observed=path.q[frames],
        counts=torch.ones(num, width, dtype=torch.float64),
        follows=flags,
        first_of_segment=~flags,
        frames=frames,
        clip=torch.zeros(num, dtype=torch.long),
        inputs=whole.inputs,
        substeps=substeps,
    )


def window_misfit(
    mechanism: Mechanism, windows: Windows, starts: Tensor, scales: FitScales, iterations: int = 4
) -> Tensor:
    """Residual rms over the noise [W] of every window after its own start [W, 2 d] was fitted, physics fixed."""
    x, d, twice = starts.clone(), starts.shape[-1] // 2, starts.shape[-1]
    shift = 1e-6 * scales.state_probes

    def rms(residual: Tensor) -> Tensor:
        """Over the frames [W, L + 1, d] without the two worst: a lost frame is no disturbance."""
        frames = residual.square().mean(-1).nan_to_num(nan=float("inf"))
        return frames.sort(dim=1).values[:, : max(frames.shape[1] - 2, 1)].mean(1).sqrt()

    best = torch.full((x.shape[0],), float("inf"), dtype=x.dtype)
    weight = torch.ones_like(windows.observed[..., :1])
    for iteration in range(iterations + 1):
        states = x.expand(1 + twice, -1, -1).clone()
        states[1:] += shift.diag()[:, None, :]
        q, _ = roll_windows(mechanism, states[..., :d], states[..., d:], windows)
        residual = (q[0] - windows.observed) / scales.noise  # [W, L + 1, d]
        best = torch.minimum(best, rms(residual))
        if iteration == iterations:
            break
        if iteration >= 2:  # frames that stand out from their window pull less
            size = residual.square().mean(-1, keepdim=True).sqrt()
            weight = 1 / (1 + (size / (3 * size.median(dim=1, keepdim=True).values.clamp(min=1.0))) ** 2)
        slopes = (weight * (q[1:] - q[0]) / shift[:, None, None, None] / scales.noise).flatten(2).permute(1, 2, 0)
        size = slopes.square().sum(1).sqrt().clamp(min=1e-30)
        sides = (weight * residual).flatten(1)[..., None]
        move = torch.linalg.lstsq((slopes / size[:, None, :]).nan_to_num(), sides.nan_to_num()).solution[..., 0] / size
        x = x - move.nan_to_num()
    return best


def undisturbed_segments(
    mechanism: Mechanism,
    path: ObservedPath,
    whole: Segment,
    starts: Tensor,
    scales: FitScales,
    width: int,
    substeps: int,
) -> list[Segment]:
    """Stretches of a clip in which every window of `width` frames follows the physics up to noise and usual misfit.

    starts [T, 2 d]: smoothed states at the frames. A run of misfitting windows hardly longer than a window is one
    blow, which cuts the clip at its worst frame; a longer one is a disturbed span, less half a window on each side.
    """
    if whole.num_frames < 2 * width:
        return [whole]
    every = sliding_stride(path.q.shape[-1])
    windows = _sliding_windows(path, whole, width, substeps, every)
    misfit = window_misfit(mechanism, windows, starts[windows.frames[:, 0]], scales)
    misfit = misfit.repeat_interleave(every)[: whole.num_frames]
    usual = max(1.0, float(misfit.quantile(0.4)))
    bad = (misfit > _LIMIT * usual).tolist()
    used = [True] * whole.num_frames
    cuts: set[int] = set()
    k = 0
    while k < len(bad):
        if not bad[k]:
            k += 1
            continue
        end = k
        while end < len(bad) and bad[end]:
            end += 1
        half = width // 2
        low = k + half if k > half else 0
        high = end - half if end < len(bad) - half else len(bad)
        if high - low < 4:
            worst = k + int(misfit[k:end].argmax())
            low, high = worst - 1, worst + 2
            cuts.add(worst)
        for frame in range(max(low, 0), min(high, len(used))):
            used[frame] = False
        k = end
    segments, begin = [], None
    for frame in range(len(used) + 1):
        alive = frame < len(used) and used[frame]
        if alive and begin is None:
            begin = frame
        elif not alive and begin is not None:
            if frame - begin >= max(width // 2, 8):
                segments.append(Segment(whole.clip, whole.begin + begin, whole.begin + frame))
            begin = None
    return segments
