"""A chain of links: what ropes, beams and soft arms are made of here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lagsplat_ns.bench.mjcf import Look, capsule, hinge, site

__all__ = ["Chain"]


@dataclass(frozen=True)
class Chain:
    """Links from a clamped end on, all along one direction when unbent. Meters, kilograms, N m / rad, N m s / rad.

    radii: at the clamped and at the free end; stiffness, damping: of every joint; a free first joint is a pivot.
    """

    origin: tuple[float, float]
    direction: tuple[float, float]
    length: float
    num_links: int
    radii: tuple[float, float]
    mass: float
    stiffness: float
    damping: float
    is_pivoted: bool = False

    @property
    def link(self) -> float:
        """Length of one link."""
        return self.length / self.num_links

    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints from the clamped end on."""
        return tuple(f"bend_{k}" for k in range(self.num_links))

    def radius(self, k: int) -> float:
        """Radius of link k."""
        return self.radii[0] + (self.radii[1] - self.radii[0]) * (k + 0.5) / self.num_links

    def viscosity(self, decay_s: float) -> float:
        """MuJoCo's viscosity of the air that alone shrinks free motion by e in `decay_s`.

        Its drag on a body is 3 pi viscosity d v, with d the mean side of the body's equivalent box.
        """
        # the box with the inertia of a capsule: mean side from the second moments of a cylinder of the same length
        across = math.sqrt(3.0) * 0.5 * (self.radii[0] + self.radii[1])
        side = (self.link + 2 * across) / 3
        return 2 * (self.mass / self.num_links) / (3 * math.pi * side * decay_s)

    def body(self, look: Look, points: Sequence[tuple[str, float]], colors: Sequence[str]) -> str:
        """The nested bodies. points: names and places as shares of the length; colors: of the links in turn."""
        opening, closing = "", ""
        step = (self.link * self.direction[0], self.link * self.direction[1])
        share = self.mass / self.num_links
        for k in range(self.num_links):
            at = self.origin if k == 0 else step
            r = self.radius(k)
            free = self.is_pivoted and k == 0
            inside = [
                site(name, (self.direction[0] * local, self.direction[1] * local), r)
                for name, place in points
                if min(int(place * self.num_links), self.num_links - 1) == k
                for local in [place * self.length - k * self.link]
            ]
            joint = hinge(f"bend_{k}", damping=self.damping, stiffness=0.0 if free else self.stiffness)
            opening += (
                f'<body pos="{at[0]:.6g} 0 {at[1]:.6g}">{joint}'
                f"{capsule((0, 0), step, r, colors[k % len(colors)], share)}{''.join(inside)}"
            )
            closing += "</body>"
        return opening + closing
