"""Blocks on springs: one alone, and one beside a pendulum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, disc, document, plate, site, slide
from lagsplat_ns.bench.scene import BuiltScene, SceneParameters
from lagsplat_ns.bench.scenes.pendulums import POINTS as PENDULUM_POINTS
from lagsplat_ns.bench.scenes.pendulums import pendulum_body

__all__ = ["MassOnSpring", "TwoMovers"]

POINTS = ("middle", "left", "right", "low")


def spring_block(
    look: Look,
    unit_m: float,
    anchor: tuple[float, float],
    place: tuple[float, float],
    axis: tuple[float, float],
    half_size: tuple[float, float],
    mass: float,
    frequency_hz: float,
    decay_s: float,
    prefix: str = "",
) -> tuple[str, str]:
    """A block on a guide, tied to an anchor by an elastic band; bodies and tendons.

    anchor, place, half_size: picture units; the guide runs through `place`, where the block rests.
    """
    stiffness = mass * (2 * math.pi * frequency_hz) ** 2
    rest = math.dist(anchor, place) * unit_m
    sag = mass * 9.81 * abs(axis[1]) / stiffness
    half = (half_size[0] * unit_m, half_size[1] * unit_m)
    depth = 0.05 * unit_m
    spots = {
        "middle": (0.0, 0.0),
        "left": (-0.6 * half[0], 0.3 * half[1]),
        "right": (0.6 * half[0], -0.2 * half[1]),
        "low": (0.2 * half[0], -0.7 * half[1]),
    }
    front = {name: depth for name in spots} | {"middle": 1.1 * depth}
    sites = "".join(site(prefix + name, at, front[name]) for name, at in spots.items())
    bodies = f"""
    <site name="{prefix}anchor" pos="{anchor[0] * unit_m:.6g} 0 {anchor[1] * unit_m:.6g}" size="0.001" rgba="0 0 0 0"/>
    {disc((anchor[0] * unit_m, anchor[1] * unit_m), 0.05 * unit_m, 0.03 * unit_m, look.color(3), 0.0)}
    <body pos="{place[0] * unit_m:.6g} 0 {place[1] * unit_m:.6g}">
      {slide(prefix + "travel", axis, damping=2 * mass / decay_s)}
      {plate((0, 0), half, depth, look.color(0), mass)}
      {disc((0, 0), 0.45 * min(half), 1.1 * depth, look.color(1), 0.0)}
      <site name="{prefix}hook" pos="0 0 0" size="0.001" rgba="0 0 0 0"/>
      {sites}
    </body>"""
    band = (
        f'<spatial name="{prefix}band" stiffness="{stiffness:.8g}" springlength="{rest - sag:.8g}" '
        f'width="{0.022 * unit_m:.6g}" rgba="{look.color(2)}">'
        f'<site site="{prefix}anchor"/><site site="{prefix}hook"/></spatial>'
    )
    return bodies, band


@dataclass(frozen=True)
class MassOnSpring(SceneParameters):
    """A block on a straight guide, upright or level, tied to an elastic band."""

    name: ClassVar[str] = "mass_on_spring"
    kind: ClassVar[str] = "rigid autonomous"
    is_upright: bool = True
    half_size: tuple[float, float] = (0.2, 0.16)
    mass_kg: float = 0.5
    frequency_hz: float = 1.1
    decay_s: float = 9.0
    start: float = 0.35
    """distance from rest at the first frame, picture units"""
    unit_m: float = 0.4

    @classmethod
    def from_seed(cls, seed: int) -> MassOnSpring:
        rng = np.random.default_rng([seed, 103])
        return cls(
            is_upright=seed % 2 == 0,
            half_size=(rng.uniform(0.16, 0.24), rng.uniform(0.13, 0.19)),
            mass_kg=rng.uniform(0.2, 1.0),
            frequency_hz=rng.uniform(0.8, 1.5),
            decay_s=rng.uniform(5.0, 14.0),
            start=float(rng.choice([-1, 1])) * rng.uniform(0.2, 0.38),
            unit_m=rng.uniform(0.25, 0.5),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        anchor, place, axis = ((0.0, 0.85), (0.0, -0.15), (0.0, 1.0))
        if not self.is_upright:
            anchor, place, axis = ((-0.88, 0.0), (0.2, 0.0), (1.0, 0.0))
        bodies, band = spring_block(
            look, u, anchor, place, axis, self.half_size, self.mass_kg, self.frequency_hz, self.decay_s
        )
        if not self.is_upright:
            below = -self.half_size[1] - 0.03
            bodies += plate((0, below * u), (0.95 * u, 0.03 * u), 0.05 * u, look.color(3), 0.0)
        xml = document(look, u, bodies, points=POINTS, extra=f"<tendon>{band}</tendon>")
        return BuiltScene(xml, u, POINTS, start_qpos=(self.start * u,))


@dataclass(frozen=True)
class TwoMovers(SceneParameters):
    """A pendulum beside a block on an elastic band; neither knows of the other."""

    name: ClassVar[str] = "two_movers"
    kind: ClassVar[str] = "rigid autonomous"
    length: float = 0.95
    bob_mass_kg: float = 0.3
    mass_kg: float = 0.3
    frequency_hz: float = 1.3
    decay_s: tuple[float, float] = (9.0, 8.0)
    start_degrees: float = 20.0
    start: float = 0.25
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> TwoMovers:
        rng = np.random.default_rng([seed, 104])
        return cls(
            length=rng.uniform(0.85, 1.05),
            bob_mass_kg=rng.uniform(0.2, 0.5),
            mass_kg=rng.uniform(0.15, 0.6),
            frequency_hz=rng.uniform(0.9, 1.6),
            decay_s=(rng.uniform(6.0, 14.0), rng.uniform(5.0, 12.0)),
            start_degrees=float(rng.choice([-1, 1])) * rng.uniform(16.0, 23.0),
            start=float(rng.choice([-1, 1])) * rng.uniform(0.2, 0.35),
            unit_m=rng.uniform(0.4, 0.6),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        swing = pendulum_body(
            look, u, (-0.42, 0.6), self.length, 0.14, 0.03, self.bob_mass_kg, self.decay_s[0], prefix="swing_"
        )
        block, band = spring_block(
            look,
            u,
            (0.55, 0.85),
            (0.55, -0.15),
            (0.0, 1.0),
            (0.17, 0.14),
            self.mass_kg,
            self.frequency_hz,
            self.decay_s[1],
            prefix="block_",
        )
        holder = disc((-0.42 * u, 0.6 * u), 0.05 * u, 0.02 * u, look.color(2), 0.0)
        points = tuple(f"swing_{name}" for name in PENDULUM_POINTS[1:]) + tuple(f"block_{name}" for name in POINTS[:3])
        xml = document(look, u, holder + swing + block, points=points, extra=f"<tendon>{band}</tendon>")
        return BuiltScene(
            xml, u, points, start_qpos=(math.radians(self.start_degrees), self.start * u), movers=(0, 0, 0, 0, 1, 1, 1)
        )
