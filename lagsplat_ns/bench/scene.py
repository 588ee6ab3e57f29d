"""A scene of the benchmark: what is filmed, how it starts, what drives it, and which points are watched."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np
from jaxtyping import Float64

__all__ = ["BuiltScene", "Input", "Pull", "SceneParameters", "band_limited", "registry", "scene_names"]

Signal = Callable[[float], float]


@dataclass(frozen=True)
class Input:
    """A measured input: the column's name with its unit, and its course around `center`.

    swing: largest distance from `center`, in the column's unit; it is scaled until the motion has the wanted size.
    """

    name: str
    center: float
    swing: float
    signal: Signal
    """time in seconds to a number in about [-1, 1]"""

    def at(self, time_s: float, scale: float = 1.0) -> float:
        return self.center + scale * self.swing * self.signal(time_s)


@dataclass(frozen=True)
class Pull:
    """A hidden hand that holds a watched point with a force until time zero: newtons, x right and z up."""

    point: str
    force: tuple[float, float]


@dataclass(frozen=True)
class BuiltScene:
    """A scene ready to be simulated: MJCF text, meters per picture unit, watched points (names of its sites), start.

    start_qpos, start_qvel: of the free joints in MuJoCo's order; pulls: instead of them, the balance under hidden
    hands. step_s: the longest step of the simulation. warm_up_s: driven scenes run so long before the first frame.
    input_travel: largest distance of a watched point from rest under the inputs, picture units.
    """

    xml: str
    unit_m: float
    points: tuple[str, ...]
    start_qpos: tuple[float, ...] = ()
    start_qvel: tuple[float, ...] = ()
    pulls: tuple[Pull, ...] = ()
    inputs: tuple[Input, ...] = ()
    step_s: float = 5e-4
    warm_up_s: float = 3.0
    input_travel: float = 0.55
    rests_anywhere: bool = False
    """no potential: it stays wherever it stopped"""
    movers: tuple[int, ...] = ()
    """which of several things that know nothing of each other every watched point belongs to; empty for one thing"""


Self = TypeVar("Self", bound="SceneParameters")


@dataclass(frozen=True)
class SceneParameters(ABC):
    """Parameters of one scene; `from_seed` draws them, `dataclasses.replace` varies them, `build` makes the scene."""

    name: ClassVar[str]
    kind: ClassVar[str]
    seed: int = field(default=0, kw_only=True)

    @classmethod
    @abstractmethod
    def from_seed(cls: type[Self], seed: int) -> Self:
        """The parameters that belong to a seed."""

    @abstractmethod
    def build(self) -> BuiltScene:
        """The scene with these parameters."""

    def as_dict(self) -> dict[str, float | int | str | bool]:
        """The parameters as plain numbers and words."""
        return dataclasses.asdict(self)


_SCENES: dict[str, type[SceneParameters]] = {}


def registry() -> dict[str, type[SceneParameters]]:
    """All scenes by name, in the order in which tables show them."""
    if not _SCENES:
        from lagsplat_ns.bench.scenes import bending, forced, pendulums, springs, turning

        kinds = [
            pendulums.Pendulum,
            pendulums.DoublePendulum,
            springs.MassOnSpring,
            springs.TwoMovers,
            turning.Fan,
            forced.MotorPendulum,
            forced.CartPole,
            bending.Rope,
            bending.Cantilever,
        ]
        from lagsplat_ns.bench.scenes import cloth, soft_arm

        kinds += [cloth.Cloth, soft_arm.SoftArm]
        _SCENES.update({kind.name: kind for kind in kinds})
    return _SCENES


def scene_names() -> tuple[str, ...]:
    """Names of all scenes."""
    return tuple(registry())


def band_limited(seed: int, low_hz: float, high_hz: float, num_tones: int = 7) -> Signal:
    """A smooth signal of random tones between two frequencies, about [-1, 1]; the same for the same seed."""
    rng = np.random.default_rng([seed, 37])
    rates: Float64[np.ndarray, " K"] = 2 * np.pi * np.sort(rng.uniform(low_hz, high_hz, num_tones))
    phases = rng.uniform(0, 2 * np.pi, num_tones)
    sizes = rng.uniform(0.5, 1.0, num_tones)
    grid = np.linspace(-4.0, 11.0, 6000)
    largest = float(np.abs(np.sin(np.outer(grid, rates) + phases) @ sizes).max())

    def signal(time_s: float) -> float:
        return float(np.sin(rates * time_s + phases) @ sizes) / largest

    return signal
