"""A pendulum and a double pendulum, swinging freely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, capsule, disc, document, hinge, site
from lagsplat_ns.bench.scene import BuiltScene, SceneParameters

__all__ = ["DoublePendulum", "Pendulum", "pendulum_body"]


def pendulum_body(
    look: Look,
    unit_m: float,
    pivot: tuple[float, float],
    length: float,
    bob_radius: float,
    rod_mass: float,
    bob_mass: float,
    decay_s: float,
    *,
    color: int = 0,
    prefix: str = "",
) -> str:
    """A rod and a bob on a hinge, with the watched points rod_1, rod_2, bob, bob_left, bob_right.

    Lengths are picture units, masses kilograms; decay_s is the time in which small swings shrink by e.
    """
    reach, r, rod = length * unit_m, bob_radius * unit_m, 0.022 * unit_m
    inertia = bob_mass * (reach**2 + r**2 / 2) + rod_mass * (reach**2 / 3)
    points = {
        "rod_1": (0.0, -0.35 * reach),
        "rod_2": (0.0, -0.65 * reach),
        "bob": (0.0, -reach),
        "bob_left": (-0.6 * r, -reach),
        "bob_right": (0.55 * r, -reach - 0.4 * r),
    }
    front = {"rod_1": rod, "rod_2": rod}
    sites = "".join(site(prefix + name, at, front.get(name, 0.05 * unit_m)) for name, at in points.items())
    return f"""<body pos="{pivot[0] * unit_m:.6g} 0 {pivot[1] * unit_m:.6g}">
      {hinge(prefix + "swing", damping=2 * inertia / decay_s)}
      {capsule((0, 0), (0, -reach), rod, look.color(3), rod_mass)}
      {disc((0, -reach), r, 0.05 * unit_m, look.color(color), bob_mass)}
      {disc((0, -reach), 0.45 * r, 0.052 * unit_m, look.color(color + 1), 0.0)}
      {sites}
    </body>"""


POINTS = ("rod_1", "rod_2", "bob", "bob_left", "bob_right")


@dataclass(frozen=True)
class Pendulum(SceneParameters):
    """A rod with a bob, light damping at the hinge."""

    name: ClassVar[str] = "pendulum"
    kind: ClassVar[str] = "rigid autonomous"
    length: float = 1.1
    bob_radius: float = 0.17
    rod_mass_kg: float = 0.05
    bob_mass_kg: float = 0.4
    decay_s: float = 10.0
    start_degrees: float = 40.0
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> Pendulum:
        rng = np.random.default_rng([seed, 101])
        return cls(
            length=rng.uniform(0.95, 1.2),
            bob_radius=rng.uniform(0.13, 0.2),
            rod_mass_kg=rng.uniform(0.02, 0.12),
            bob_mass_kg=rng.uniform(0.2, 0.6),
            decay_s=rng.uniform(6.0, 16.0),
            start_degrees=float(rng.choice([-1, 1])) * rng.uniform(24.0, 46.0),
            unit_m=rng.uniform(0.35, 0.7),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look = Look.from_seed(self.seed)
        pivot = (0.0, 0.62)
        body = pendulum_body(
            look,
            self.unit_m,
            pivot,
            self.length,
            self.bob_radius,
            self.rod_mass_kg,
            self.bob_mass_kg,
            self.decay_s,
        )
        holder = disc((0, pivot[1] * self.unit_m), 0.05 * self.unit_m, 0.02 * self.unit_m, look.color(2), 0.0)
        xml = document(look, self.unit_m, holder + body, points=POINTS)
        return BuiltScene(xml, self.unit_m, POINTS, start_qpos=(math.radians(self.start_degrees),))


@dataclass(frozen=True)
class DoublePendulum(SceneParameters):
    """Two rods with a bob each, the second hanging from the first bob."""

    name: ClassVar[str] = "double_pendulum"
    kind: ClassVar[str] = "rigid autonomous"
    lengths: tuple[float, float] = (0.62, 0.6)
    bob_radii: tuple[float, float] = (0.12, 0.15)
    bob_masses_kg: tuple[float, float] = (0.3, 0.3)
    rod_mass_kg: float = 0.05
    decay_s: float = 10.0
    start_degrees: tuple[float, float] = (30.0, -25.0)
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> DoublePendulum:
        rng = np.random.default_rng([seed, 102])
        sign = float(rng.choice([-1, 1]))
        return cls(
            lengths=(rng.uniform(0.52, 0.7), rng.uniform(0.5, 0.66)),
            bob_radii=(rng.uniform(0.1, 0.14), rng.uniform(0.12, 0.16)),
            bob_masses_kg=(rng.uniform(0.2, 0.5), rng.uniform(0.15, 0.4)),
            rod_mass_kg=rng.uniform(0.02, 0.08),
            decay_s=rng.uniform(7.0, 14.0),
            start_degrees=(sign * rng.uniform(15.0, 32.0), -sign * rng.uniform(10.0, 45.0)),
            unit_m=rng.uniform(0.4, 0.7),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        pivot = (0.0, 0.72 * u)
        l1, l2 = (length * u for length in self.lengths)
        r1, r2 = (radius * u for radius in self.bob_radii)
        m1, m2 = self.bob_masses_kg
        rod, front = 0.022 * u, 0.045 * u
        damping = (
            2 * (m1 + m2 + self.rod_mass_kg) * l1**2 / self.decay_s,
            0.35 * 2 * (m2 + self.rod_mass_kg / 3) * l2**2 / self.decay_s,
        )
        # the second link hangs a little behind the first bob, as a real one would have to
        body = f"""{disc(pivot, 0.05 * u, 0.02 * u, look.color(2), 0.0)}
    <body pos="{pivot[0]:.6g} 0 {pivot[1]:.6g}">
      {hinge("upper", damping=damping[0])}
      {capsule((0, 0), (0, -l1), rod, look.color(3), self.rod_mass_kg)}
      {disc((0, -l1), r1, front, look.color(0), m1)}
      {site("rod_upper", (0, -0.5 * l1), rod)}{site("bob_upper", (-0.5 * r1, -l1 + 0.4 * r1), front)}
      <body pos="0 0 {-l1:.6g}">
        {hinge("lower", damping=damping[1])}
        {capsule((0, 0), (0, -l2), rod, look.color(2), self.rod_mass_kg)}
        {disc((0, -l2), r2, front, look.color(1), m2)}
        {disc((0, -l2), 0.4 * r2, 1.05 * front, look.color(0), 0.0)}
        {site("rod_lower", (0, -0.5 * l2), rod)}{site("bob_lower", (0, -l2), 1.05 * front)}
        {site("bob_lower_edge", (0.7 * r2, -l2 - 0.2 * r2), front)}
      </body>
    </body>"""
        points = ("rod_upper", "bob_upper", "rod_lower", "bob_lower", "bob_lower_edge")
        first, second = (math.radians(angle) for angle in self.start_degrees)
        return BuiltScene(document(look, u, body, points=points), u, points, start_qpos=(first, second - first))
