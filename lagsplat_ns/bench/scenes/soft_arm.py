"""A soft arm with two chambers, bent by logged pressures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, document, plate
from lagsplat_ns.bench.scene import BuiltScene, Input, SceneParameters, band_limited
from lagsplat_ns.bench.scenes.chain import Chain

__all__ = ["SoftArm"]


@dataclass(frozen=True)
class SoftArm(SceneParameters):
    """A tapered arm hanging from its base; the pressure in either half bends that half, one to each side."""

    name: ClassVar[str] = "soft_arm"
    kind: ClassVar[str] = "deformable forced"
    length: float = 1.35
    num_links: int = 12
    radii: tuple[float, float] = (0.11, 0.07)
    mass_kg: float = 0.3
    frequency_hz: float = 1.0
    """of the slowest mode without gravity"""
    decay_s: float = 2.0
    mean_kPa: float = 20.0
    travel: float = 0.75
    """largest distance of the tip from rest, picture units"""
    unit_m: float = 0.3

    @classmethod
    def from_seed(cls, seed: int) -> SoftArm:
        rng = np.random.default_rng([seed, 110])
        return cls(
            length=rng.uniform(1.25, 1.4),
            radii=(rng.uniform(0.1, 0.13), rng.uniform(0.06, 0.085)),
            mass_kg=rng.uniform(0.15, 0.5),
            frequency_hz=rng.uniform(0.8, 1.4),
            decay_s=rng.uniform(1.5, 4.0),
            mean_kPa=rng.uniform(15.0, 30.0),
            travel=rng.uniform(0.6, 0.8),
            unit_m=rng.uniform(0.2, 0.4),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        length, rate = self.length * u, 2 * math.pi * self.frequency_hz
        bending = (rate / 3.516) ** 2 * (self.mass_kg / length) * length**4
        stiffness = bending * self.num_links / length
        chain = Chain(
            origin=(0.0, 0.72 * u),
            direction=(0.0, -1.0),
            length=length,
            num_links=self.num_links,
            radii=(self.radii[0] * u, self.radii[1] * u),
            mass=self.mass_kg,
            stiffness=stiffness,
            damping=stiffness * (2 / self.decay_s * 0.7) / rate**2,
        )
        places = [("upper", 0.25), ("joint", 0.45), ("middle", 0.6), ("lower", 0.8), ("tip", 0.96)]
        base = plate((0, 0.84 * u), (0.25 * u, 0.12 * u), 0.14 * u, look.color(3), 0.0)
        body = base + chain.body(look, places, (look.color(0), look.color(0, 0.8)))
        points = tuple(name for name, _ in places)
        half = self.num_links // 2
        names = chain.joint_names()
        tendons, motors, inputs = "", "", []
        for k, (joints, side) in enumerate(((names[:half], 1.0), (names[half:], -1.0))):
            column = f"pressure_{k + 1}_kPa"
            wires = "".join(f'<joint joint="{name}" coef="1"/>' for name in joints)
            tendons += f'<fixed name="chamber_{k}">{wires}</fixed>'
            # 1 kPa bends every joint by some hundredths of its stiffness
            motors += f'<motor name="{column}" tendon="chamber_{k}" gear="{side * 0.004 * stiffness:.8g}"/>'
            signal = band_limited(300 + 10 * self.seed + k, 0.1, 1.3)
            inputs.append(Input(column, self.mean_kPa, 0.6 * self.mean_kPa, signal))
        viscosity = chain.viscosity(self.decay_s / 0.3)
        xml = document(
            look,
            u,
            body,
            points=points,
            inputs=motors,
            extra=f"<tendon>{tendons}</tendon>",
            viscosity=viscosity,
            step_s=2.5e-4,
        )
        return BuiltScene(xml, u, points, inputs=tuple(inputs), input_travel=self.travel, step_s=2.5e-4)
