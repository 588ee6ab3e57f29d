"""A fan that runs down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, disc, document, hinge, plate, site
from lagsplat_ns.bench.scene import BuiltScene, SceneParameters

__all__ = ["Fan"]


@dataclass(frozen=True)
class Fan(SceneParameters):
    """A wheel with blades of different colors that spins down about its fixed axis; nothing pulls it back."""

    name: ClassVar[str] = "fan"
    kind: ClassVar[str] = "rigid autonomous"
    num_blades: int = 3
    blade: tuple[float, float] = (0.6, 0.13)
    """length and half width, picture units"""
    blade_mass_kg: float = 0.1
    decay_s: float = 7.0
    """time in which the speed falls by e"""
    start_turns_per_s: float = 0.9
    unit_m: float = 0.3

    @classmethod
    def from_seed(cls, seed: int) -> Fan:
        rng = np.random.default_rng([seed, 105])
        return cls(
            num_blades=3 + seed % 2,
            blade=(rng.uniform(0.5, 0.66), rng.uniform(0.1, 0.15)),
            blade_mass_kg=rng.uniform(0.05, 0.2),
            decay_s=rng.uniform(5.0, 10.0),
            start_turns_per_s=float(rng.choice([-1, 1])) * rng.uniform(0.6, 1.1),
            unit_m=rng.uniform(0.2, 0.4),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        length, width = self.blade[0] * u, self.blade[1] * u
        hub, depth = 0.14 * u, 0.02 * u
        parts, sites = [], []
        for k in range(self.num_blades):
            angle = 2 * math.pi * k / self.num_blades + 0.3
            along, across = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
            middle = hub + length / 2
            center = (middle * along[0], middle * along[1])
            color = look.color(k, 1.0 if k < 4 else 0.6)
            parts.append(plate(center, (length / 2, width), depth, color, self.blade_mass_kg, turn=angle))
            for name, far, side in (("middle", 0.5, 0.0), ("tip", 0.85, 0.4)):
                place = (
                    (hub + far * length) * along[0] + side * width * across[0],
                    (hub + far * length) * along[1] + side * width * across[1],
                )
                sites.append((f"blade_{k}_{name}", place))
        points = tuple(name for name, _ in sites)[:6]
        inertia = self.num_blades * self.blade_mass_kg * ((hub + length / 2) ** 2 + length**2 / 12)
        body = f"""{plate((0, -0.5 * u), (0.04 * u, 0.5 * u), 0.02 * u, look.color(3, 0.7), 0.0, y=0.1 * u)}
    <body>
      {hinge("turn", damping=inertia / self.decay_s)}
      {"".join(parts)}
      {disc((0, 0), hub, 1.5 * depth, look.color(3), 0.02)}
      {"".join(site(name, at, depth) for name, at in sites)}
    </body>"""
        rate = 2 * math.pi * self.start_turns_per_s
        return BuiltScene(
            document(look, u, body, points=points),
            u,
            points,
            start_qpos=(0.0,),
            start_qvel=(rate,),
            rests_anywhere=True,
        )
