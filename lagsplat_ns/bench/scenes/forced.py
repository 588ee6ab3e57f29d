"""Rigid things under a logged force: a pendulum on a motor, a cart with a hanging pole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, capsule, disc, document, hinge, plate, site, slide
from lagsplat_ns.bench.scene import BuiltScene, Input, SceneParameters, band_limited
from lagsplat_ns.bench.scenes.pendulums import POINTS as PENDULUM_POINTS
from lagsplat_ns.bench.scenes.pendulums import pendulum_body

__all__ = ["CartPole", "MotorPendulum"]


@dataclass(frozen=True)
class MotorPendulum(SceneParameters):
    """A pendulum on the shaft of a motor whose torque is logged."""

    name: ClassVar[str] = "motor_pendulum"
    kind: ClassVar[str] = "rigid forced"
    length: float = 1.05
    bob_radius: float = 0.15
    rod_mass_kg: float = 0.06
    bob_mass_kg: float = 0.3
    decay_s: float = 5.0
    band_hz: tuple[float, float] = (0.1, 1.6)
    travel: float = 0.6
    """largest distance of the bob from rest, picture units"""
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> MotorPendulum:
        rng = np.random.default_rng([seed, 106])
        return cls(
            length=rng.uniform(0.95, 1.15),
            bob_radius=rng.uniform(0.13, 0.18),
            rod_mass_kg=rng.uniform(0.03, 0.1),
            bob_mass_kg=rng.uniform(0.2, 0.5),
            decay_s=rng.uniform(5.0, 9.0),
            travel=rng.uniform(0.45, 0.7),
            unit_m=rng.uniform(0.4, 0.7),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        pivot = (0.0, 0.6)
        body = pendulum_body(
            look, u, pivot, self.length, self.bob_radius, self.rod_mass_kg, self.bob_mass_kg, self.decay_s
        )
        motor = plate((0, pivot[1] * u), (0.16 * u, 0.12 * u), 0.05 * u, look.color(3, 0.6), 0.0, y=0.12 * u)
        weight = (self.bob_mass_kg + 0.5 * self.rod_mass_kg) * 9.81 * self.length * u
        torque = Input("torque_Nm", 0.0, 0.3 * weight, band_limited(100 + self.seed, *self.band_hz))
        xml = document(
            look,
            u,
            motor + body,
            points=PENDULUM_POINTS,
            inputs='<motor name="torque_Nm" joint="swing" gear="1"/>',
        )
        return BuiltScene(xml, u, PENDULUM_POINTS, inputs=(torque,), input_travel=self.travel)


@dataclass(frozen=True)
class CartPole(SceneParameters):
    """A cart on a level rail, pushed by a logged force and held near the middle by weak springs; a pole hangs on it."""

    name: ClassVar[str] = "cart_pole"
    kind: ClassVar[str] = "rigid forced"
    pole: float = 0.75
    cart_mass_kg: float = 0.6
    pole_mass_kg: float = 0.1
    bob_mass_kg: float = 0.2
    centering_hz: float = 0.45
    decay_s: tuple[float, float] = (5.0, 8.0)
    travel: float = 0.6
    unit_m: float = 0.5

    @classmethod
    def from_seed(cls, seed: int) -> CartPole:
        rng = np.random.default_rng([seed, 107])
        return cls(
            pole=rng.uniform(0.65, 0.85),
            cart_mass_kg=rng.uniform(0.4, 0.9),
            pole_mass_kg=rng.uniform(0.05, 0.15),
            bob_mass_kg=rng.uniform(0.1, 0.3),
            centering_hz=rng.uniform(0.4, 0.6),
            decay_s=(rng.uniform(4.0, 7.0), rng.uniform(6.0, 10.0)),
            travel=rng.uniform(0.5, 0.65),
            unit_m=rng.uniform(0.4, 0.6),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        level, length, radius = 0.4 * u, self.pole * u, 0.1 * u
        total = self.cart_mass_kg + self.pole_mass_kg + self.bob_mass_kg
        stiffness = total * (2 * math.pi * self.centering_hz) ** 2
        inertia = self.bob_mass_kg * length**2 + self.pole_mass_kg * length**2 / 3
        front = 0.05 * u
        body = f"""{plate((0, level - 0.13 * u), (0.98 * u, 0.02 * u), 0.03 * u, look.color(3, 0.7), 0.0, y=0.1 * u)}
    <body pos="0 0 {level:.6g}">
      {slide("travel", (1, 0), damping=2 * total / self.decay_s[0], stiffness=stiffness)}
      {plate((0, 0), (0.2 * u, 0.1 * u), front, look.color(0), self.cart_mass_kg)}
      {site("cart_left", (-0.13 * u, 0.04 * u), front)}{site("cart_right", (0.13 * u, -0.03 * u), front)}
      <body pos="0 {-1.6 * front:.6g} 0">
        {hinge("swing", damping=2 * inertia / self.decay_s[1])}
        {capsule((0, 0), (0, -length), 0.025 * u, look.color(1), self.pole_mass_kg)}
        {disc((0, -length), radius, 0.03 * u, look.color(2), self.bob_mass_kg)}
        {site("pole_upper", (0, -0.4 * length), 0.025 * u)}{site("pole_lower", (0, -0.7 * length), 0.025 * u)}
        {site("bob", (0, -length), 0.03 * u)}{site("bob_edge", (0.5 * radius, -length - 0.4 * radius), 0.03 * u)}
      </body>
    </body>"""
        points = ("cart_left", "cart_right", "pole_upper", "pole_lower", "bob", "bob_edge")
        force = Input("force_N", 0.0, 0.3 * total * 9.81, band_limited(200 + self.seed, 0.1, 1.6))
        xml = document(look, u, body, points=points, inputs='<motor name="force_N" joint="travel" gear="1"/>')
        return BuiltScene(xml, u, points, inputs=(force,), input_travel=self.travel)
