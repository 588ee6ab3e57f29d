"""Windows of multiple shooting: short stretches of the segments, all rolled at once with their sensitivities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import no_type_check

import numpy as np
import torch
from torch import Tensor

from lagsplat_ns.dynamics.compiled.pack import compiled_of
from lagsplat_ns.dynamics.compiled.prepare import prepare
from lagsplat_ns.dynamics.compiled.rolling import roll
from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.integrators import driven_acceleration, rk4
from lagsplat_ns.dynamics.logged_inputs import CLIP_SPACING_S, StageInputs, joined_inputs, step_inputs
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath, Segment

__all__ = ["Windows", "cut_windows", "roll_windows", "roll_windows_in_torch", "sensitivities"]

_PROBE = 1e-6


@dataclass(frozen=True)
class Windows:
    """Windows of the same number of frames; consecutive ones of a segment share their border frame.

    start_s [W]; dt [W, L] seconds, zero past a window's end; observed [W, L + 1, d]; counts [W, L + 1] one where a
    frame is compared (every frame once); follows [W] whether the next window continues this one; first_of_segment [W];
    frames [W, L + 1] frame numbers within the clip, clip [W]; inputs of the joined clips, substeps per frame.
    """

    start_s: Tensor
    dt: Tensor
    observed: Tensor
    counts: Tensor
    follows: Tensor
    first_of_segment: Tensor
    frames: Tensor
    clip: Tensor
    inputs: InputFunction | None
    substeps: int

    @property
    def num_windows(self) -> int:
        return self.dt.shape[0]

    @cached_property
    def stage_inputs(self) -> np.ndarray | None:
        """Inputs [W, 3 L substeps, m] at beginning, middle and end of every step of rk4 (see `step_inputs`)."""
        if self.inputs is None:
            return None
        lengths = (self.dt / self.substeps).repeat_interleave(self.substeps, dim=1)
        begins = self.start_s[:, None] + lengths.cumsum(1) - lengths
        return np.ascontiguousarray(step_inputs(self.inputs, begins, lengths).flatten(1, 2).numpy())


def cut_windows(paths: list[ObservedPath], segments: list[Segment], length: int, substeps: int) -> Windows:
    """Windows of about `length` frames that cover the segments, equally long within a segment."""
    rows: list[tuple[Segment, int, int]] = []
    for segment in segments:
        count = max(math.ceil((segment.num_frames - 1) / (length - 1)), 1)
        edges = [segment.begin + round(k * (segment.num_frames - 1) / count) for k in range(count + 1)]
        rows += [(segment, a, b) for a, b in zip(edges[:-1], edges[1:])]
    steps = max(b - a for _, a, b in rows)
    d, double = paths[0].q.shape[-1], torch.float64
    num = len(rows)
    dt, counts = torch.zeros(num, steps, dtype=double), torch.zeros(num, steps + 1, dtype=double)
    observed, frames = torch.zeros(num, steps + 1, d, dtype=double), torch.zeros(num, steps + 1, dtype=torch.long)
    start, follows = torch.zeros(num, dtype=double), torch.zeros(num, dtype=torch.bool)
    first = torch.zeros(num, dtype=torch.bool)
    for w, (segment, a, b) in enumerate(rows):
        path = paths[segment.clip]
        dt[w, : b - a] = path.times_s[a + 1 : b + 1] - path.times_s[a:b]
        frames[w] = torch.arange(a, a + steps + 1).clamp(max=b)
        observed[w] = path.q[frames[w]]
        follows[w], first[w] = b < segment.end - 1, a == segment.begin
        counts[w, : b - a + (0 if bool(follows[w]) else 1)] = 1.0
        start[w] = path.times_s[a] + segment.clip * CLIP_SPACING_S
    clip = torch.tensor([segment.clip for segment, _, _ in rows])
    return Windows(
        start,
        dt,
        observed,
        counts,
        follows,
        first,
        frames,
        clip,
        joined_inputs([path.inputs for path in paths]),
        substeps,
    )


def roll_windows(mechanism: Mechanism, q: Tensor, qd: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """q and qd [*S, W, L + 1, d] of all windows from starts [*S, W, d].

    Compiled where the parts of the mechanism have a compiled form; `roll_windows_in_torch` gives the same up to
    round-off. Law: tests/laws/test_compiled.py.
    """
    compiled = compiled_of(mechanism) if q.dtype == torch.float64 else None
    if compiled is None or len(compiled.batch) > q.dim() - 1 or compiled.batch[-1:] not in ((), (1,)):
        return roll_windows_in_torch(mechanism, q, qd, windows)
    before = q.shape[:-2]
    count, vectors = math.prod(before), math.prod(compiled.batch)
    if vectors not in (1, count):
        return roll_windows_in_torch(mechanism, q, qd, windows)
    values = windows.stage_inputs
    if values is not None and values.shape[-1] != compiled.num_inputs:
        mechanism.input_force(q, torch.from_numpy(values[:, 0]))  # says what is wrong
    if values is None:
        values = np.zeros((windows.num_windows, 1, 0))
    prepare()
    starts, start_rates = (x.detach().reshape(count, *q.shape[-2:]).contiguous().numpy() for x in (q, qd))
    dt = windows.dt.detach().contiguous().numpy()
    path, rates = roll(compiled.model, starts, start_rates, dt, values, windows.substeps)
    return torch.from_numpy(path.reshape(*before, *path.shape[1:])), torch.from_numpy(
        rates.reshape(*before, *rates.shape[1:])
    )


@no_type_check  # in the innermost loop
def roll_windows_in_torch(mechanism: Mechanism, q: Tensor, qd: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """The same for parts of any kind, and differentiable."""
    values = windows.stage_inputs
    a = driven_acceleration(mechanism, None, None if values is None else StageInputs(torch.from_numpy(values)))
    path, rates, t = [q], [qd], windows.start_s
    for k in range(windows.dt.shape[1]):
        h = windows.dt[:, k, None] / windows.substeps
        for _ in range(windows.substeps):
            q, qd = rk4(a, q, qd, t, h)
            t = t + h[:, 0]
        path.append(q)
        rates.append(qd)
    return torch.stack(path, dim=-2), torch.stack(rates, dim=-2)


def sensitivities(
    mechanism: Mechanism, parameters: Tensor, starts: Tensor, windows: Windows, probes: Tensor, state_probes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """States [W, L + 1, 2 d] and their derivatives by parameters [W, L + 1, 2 d, n] and starts [W, L + 1, 2 d, 2 d].

    All perturbed rollouts run as one batch: a step costs the same handful of tensor operations as a single rollout.
    parameters [n], starts [W, 2 d]; probes [n] and state_probes [2 d] are the sizes in which things change.
    """
    n, twice = parameters.shape[0], starts.shape[-1]
    d = twice // 2
    moves, shifts = _PROBE * probes, _PROBE * state_probes
    vectors = parameters.expand(1 + n + twice, 1, n).clone()
    vectors[1 : 1 + n, 0] += moves.diag()
    states = starts.expand(1 + n + twice, -1, -1).clone()
    states[1 + n :] += shifts.diag()[:, None, :]
    q, qd = roll_windows(mechanism.with_vector(vectors), states[..., :d], states[..., d:], windows)
    both = torch.cat([q, qd], dim=-1)  # [1 + n + 2d, W, L + 1, 2d]
    slopes = (both[1:] - both[0]) / torch.cat([moves, shifts])[:, None, None, None]
    slopes = slopes.permute(1, 2, 3, 0)
    return both[0], slopes[..., :n], slopes[..., n:]
