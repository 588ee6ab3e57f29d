"""What the clips showed: the range of states that the physics was learned from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.simulation.held import RecordedPath
from lagsplat_ns.types import State

__all__ = ["SeenRange"]

_MARGIN = 0.15
"""how far beyond the training frames, in ranges, the physics is still believed"""


class SeenRange:
    """The box of coordinates and rates in the training frames of all clips, widened by a margin.

    q_low, q_high [d]: the range of the training frames themselves; qd_most [d]: largest rate, 1/s.
    """

    def __init__(self, paths: Sequence[RecordedPath]) -> None:
        q, qd = (
            torch.cat([getattr(p, name)[: max(int(p.num_train), 1)].detach().cpu().double() for p in paths])
            for name in ("q", "qd")
        )
        self.q_low: Float[Tensor, " d"] = q.amin(0)
        self.q_high: Float[Tensor, " d"] = q.amax(0)
        self.qd_most: Float[Tensor, " d"] = qd.abs().amax(0)

    def excess(self, state: State) -> float:
        """How far a state lies outside the training frames: 0 inside, 1 a whole range beyond in some coordinate."""
        span = (self.q_high - self.q_low).clamp(min=1e-12)
        beyond = torch.maximum(self.q_low - state.q, state.q - self.q_high) / span
        faster = (state.qd.abs() - self.qd_most) / self.qd_most.clamp(min=1e-12)
        return max(float(torch.maximum(beyond, faster).max()), 0.0)

    def is_outside(self, state: State) -> bool:
        """Whether a state lies further outside than the margin."""
        return self.excess(state) > _MARGIN
