"""Things that bend under their own forces: a hanging rope, a beam clamped at one end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, disc, document, plate
from lagsplat_ns.bench.scene import BuiltScene, Pull, SceneParameters
from lagsplat_ns.bench.scenes.chain import Chain

__all__ = ["Cantilever", "Rope"]


@dataclass(frozen=True)
class Rope(SceneParameters):
    """A rope hanging from a nail, let go from where two hands held it aside."""

    name: ClassVar[str] = "rope"
    kind: ClassVar[str] = "deformable autonomous"
    length: float = 1.35
    num_links: int = 20
    radius: float = 0.04
    mass_kg: float = 0.2
    stiffness_share: float = 0.02
    """bending stiffness of a joint over weight times length"""
    decay_s: float = 7.0
    pull_tip: float = 0.25
    """force at the tip over the rope's weight"""
    pull_middle: float = -0.2
    unit_m: float = 0.6

    @classmethod
    def from_seed(cls, seed: int) -> Rope:
        rng = np.random.default_rng([seed, 108])
        sign = float(rng.choice([-1, 1]))
        return cls(
            length=rng.uniform(1.2, 1.45),
            radius=rng.uniform(0.033, 0.05),
            mass_kg=rng.uniform(0.1, 0.4),
            stiffness_share=rng.uniform(0.01, 0.04),
            decay_s=rng.uniform(5.0, 10.0),
            pull_tip=sign * rng.uniform(0.15, 0.3),
            pull_middle=sign * rng.uniform(-0.3, -0.1),
            unit_m=rng.uniform(0.4, 0.8),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        weight = self.mass_kg * 9.81
        stiffness = self.stiffness_share * weight * self.length * u
        # the fibers damp bends within some milliseconds, the air takes the rest
        chain = Chain(
            origin=(0.0, 0.75 * u),
            direction=(0.0, -1.0),
            length=self.length * u,
            num_links=self.num_links,
            radii=(self.radius * u, self.radius * u),
            mass=self.mass_kg,
            stiffness=stiffness,
            damping=0.004 * stiffness,
            is_pivoted=True,
        )
        places = [("quarter", 0.25), ("middle", 0.5), ("lower", 0.7), ("low", 0.85), ("tip", 0.97)]
        body = disc(chain.origin, 0.06 * u, 0.02 * u, look.color(3), 0.0) + chain.body(
            look, places, (look.color(0), look.color(0, 0.8))
        )
        points = tuple(name for name, _ in places)
        xml = document(look, u, body, points=points, viscosity=chain.viscosity(self.decay_s), step_s=2.5e-4)
        pulls = (Pull("tip", (self.pull_tip * weight, 0.0)), Pull("middle", (self.pull_middle * weight, 0.0)))
        return BuiltScene(xml, u, points, pulls=pulls, step_s=2.5e-4)


@dataclass(frozen=True)
class Cantilever(SceneParameters):
    """An elastic beam clamped in a block at the left, bent aside by a hand and let go."""

    name: ClassVar[str] = "cantilever"
    kind: ClassVar[str] = "deformable autonomous"
    length: float = 1.35
    num_links: int = 14
    radii: tuple[float, float] = (0.06, 0.045)
    mass_kg: float = 0.2
    frequency_hz: float = 1.8
    """of the slowest mode without gravity"""
    decay_s: float = 7.0
    pull_tip: float = 0.3
    """displacement that the hand makes, picture units, downward positive"""
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> Cantilever:
        rng = np.random.default_rng([seed, 109])
        return cls(
            length=rng.uniform(1.2, 1.45),
            radii=(rng.uniform(0.055, 0.075), rng.uniform(0.035, 0.05)),
            mass_kg=rng.uniform(0.1, 0.4),
            frequency_hz=rng.uniform(1.5, 2.4),
            decay_s=rng.uniform(5.0, 10.0),
            pull_tip=float(rng.choice([-1, 1])) * rng.uniform(0.25, 0.4),
            unit_m=rng.uniform(0.3, 0.5),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        length = self.length * u
        rate = 2 * math.pi * self.frequency_hz
        # a uniform beam: rate^2 = 3.516^2 EI / (mass / length) / length^4, and a joint has EI / link
        bending = (rate / 3.516) ** 2 * (self.mass_kg / length) * length**4
        stiffness = bending * self.num_links / length
        # a third of the slowest mode's damping comes from the material, the rest from the air
        chain = Chain(
            origin=(-0.8 * u, 0.15 * u),
            direction=(1.0, 0.0),
            length=length,
            num_links=self.num_links,
            radii=(self.radii[0] * u, self.radii[1] * u),
            mass=self.mass_kg,
            stiffness=stiffness,
            damping=stiffness * (2 / self.decay_s / 3) / rate**2,
        )
        places = [("root", 0.3), ("middle", 0.5), ("outer", 0.7), ("near_tip", 0.85), ("tip", 0.97)]
        block = plate((-0.9 * u, 0.15 * u), (0.14 * u, 0.16 * u), 0.1 * u, look.color(3), 0.0)
        body = block + chain.body(look, places, (look.color(0), look.color(0, 0.85)))
        points = tuple(name for name, _ in places)
        force = -self.pull_tip * u * 3 * bending / length**3
        xml = document(look, u, body, points=points, viscosity=chain.viscosity(1.5 * self.decay_s), step_s=2e-4)
        return BuiltScene(xml, u, points, pulls=(Pull("tip", (0.0, force)),), step_s=2e-4)
