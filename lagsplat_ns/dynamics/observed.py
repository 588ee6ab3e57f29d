"""Observed paths: what an identification is given."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.inputs import InputFunction

__all__ = ["ObservedPath", "Segment"]

MIN_FRAMES = 8


@dataclass(frozen=True)
class ObservedPath:
    """The coordinates of one clip at its frames, with noise.

    times_s [T] seconds, increasing, evenly spaced or not; q [T, d]; `inputs` maps times [*] to values [*, m]. Frames
    from `num_train` on are held out: never fitted, may be NaN, only compared with (default: none).

    Raises: ValueError if times do not increase, fitted values are not finite, or fewer than 8 frames are to be fitted.
    """

    times_s: Float[Tensor, " T"]
    q: Float[Tensor, "T d"]
    inputs: InputFunction | None = None
    num_train: int | None = None

    def __post_init__(self) -> None:
        steps = self.times_s[1:] - self.times_s[:-1]
        if not bool((steps > 0).all()):
            row = int((~(steps > 0)).nonzero()[0]) + 1
            raise ValueError(
                f"`times_s` must increase, but frame {row} ({float(self.times_s[row]):.6g} s) follows frame {row - 1} "
                f"({float(self.times_s[row - 1]):.6g} s).\n  Sort the frames by time and remove duplicates."
            )
        if self.q.shape[0] != self.times_s.shape[0]:
            raise ValueError(
                f"`q` must have one row per time, but has {self.q.shape[0]} rows for {self.times_s.shape[0]} times.\n"
                "  Pass q of shape [T, d]; rows of held-out frames may be NaN."
            )
        count = self.fitted_frames
        if count < MIN_FRAMES or count > self.times_s.shape[0]:
            raise ValueError(
                f"An identification needs {MIN_FRAMES} frames or more to fit, but got {count} of "
                f"{self.times_s.shape[0]}.\n  Use a longer clip, or hold out fewer frames."
            )
        finite = torch.isfinite(self.q[:count]).all(-1)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0])
            raise ValueError(
                f"`q` must be finite where it is fitted, but frame {row} is {self.q[row].tolist()}.\n"
                "  Fill the gap, or split the clip there into two paths."
            )

    @property
    def fitted_frames(self) -> int:
        return self.times_s.shape[0] if self.num_train is None else self.num_train


@dataclass(frozen=True)
class Segment:
    """Frames begin <= k < end of one clip that follow from one start by the physics alone."""

    clip: int
    begin: int
    end: int

    @property
    def num_frames(self) -> int:
        return self.end - self.begin
