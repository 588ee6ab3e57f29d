"""The training schedule as data: what every stage trains, how fast, and on which pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StageName = Literal["background", "kinematics", "embed", "joint"]

PARAMETER_GROUPS = (
    "means", "scales", "quats", "features_dc", "features_rest", "opacities", "skinning",
    "frame_motions", "bases", "conditional",
)  # fmt: skip
_APPEARANCE = {"means": 1.0, "scales": 1.0, "quats": 1.0, "features_dc": 1.0, "opacities": 1.0}


@dataclass(frozen=True)
class Stage:
    """One stretch of the training.

    share: part of all iterations; trains: factor on the learning rate of every group that trains, others stand still;
    frames: pictures in one step; blurs: pairs (progress, width) - until that progress residuals are averaged over
    width x width pixels; decay_at: progress after which all learning rates are a fifth.
    """

    name: StageName
    share: float
    trains: Mapping[str, float]
    frames: int = 4
    blurs: tuple[tuple[float, int], ...] = ()
    decay_at: float = 0.7

    def blur(self, progress: float) -> int:
        """Width in pixels of the averaging at a progress in [0, 1]; 1 is none."""
        return next((width for until, width in self.blurs if progress < until), 1)

    def rate(self, group: str, progress: float) -> float:
        """Factor on a group's learning rate."""
        return self.trains.get(group, 0.0) * (1.0 if progress < self.decay_at else 0.2)


def default_stages() -> tuple[Stage, ...]:
    """background picture -> free motions -> motions as functions of q -> q moved by the learned dynamics."""
    return (
        Stage("background", 0.15, {**_APPEARANCE, "quats": 1.0}, frames=1),
        Stage(
            "kinematics",
            0.35,
            {**_APPEARANCE, "frame_motions": 1.0, "skinning": 1.0, "bases": 0.3},
            blurs=((0.2, 7), (0.35, 3)),
        ),
        Stage("embed", 0.3, {**_APPEARANCE, "skinning": 0.5, "bases": 1.0, "conditional": 1.0}),
        Stage("joint", 0.2, {**_APPEARANCE, "skinning": 0.2, "bases": 0.2, "conditional": 0.5}, decay_at=0.5),
    )


@dataclass(frozen=True)
class Schedule:
    """Stages laid out over a number of iterations; the last one goes on when training is resumed past it."""

    num_iterations: int
    stages: tuple[Stage, ...] = field(default_factory=default_stages)

    def starts(self) -> dict[int, Stage]:
        """First iteration of every stage that gets at least one."""
        total, start, result = sum(stage.share for stage in self.stages), 0.0, {}
        for stage in self.stages:
            first, end = round(start), round(start + stage.share / total * self.num_iterations)
            if end > first:
                result[first] = stage
            start += stage.share / total * self.num_iterations
        return result

    def at(self, step: int) -> tuple[Stage, float]:
        """The stage of an iteration and how far it has come, in [0, 1]."""
        starts = self.starts()
        first = max(begin for begin in starts if begin <= max(step, 0))
        later = [begin for begin in starts if begin > first]
        end = min(later) if later else self.num_iterations
        return starts[first], min(1.0, (step - first) / max(end - first, 1))
