"""A cloth that hangs from a bar and sways sideways in its own plane."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lagsplat_ns.bench.mjcf import Look, document, plate, site, slide
from lagsplat_ns.bench.scene import BuiltScene, Pull, SceneParameters

__all__ = ["Cloth"]


@dataclass(frozen=True)
class Cloth(SceneParameters):
    """A net of masses on stiff threads with weak shear springs, fastened along its top, drawn as a checked cloth."""

    name: ClassVar[str] = "cloth"
    kind: ClassVar[str] = "deformable autonomous"
    width: float = 0.9
    height: float = 1.2
    num_columns: int = 6
    num_rows: int = 8
    mass_kg: float = 0.3
    thread: float = 150.0
    """stiffness of a thread: weight of the whole cloth per such a share of its height"""
    shear: float = 1.0
    """stiffness of the diagonals, in the same measure"""
    decay_s: float = 6.0
    pull: float = 0.3
    """force at the lower edge over the weight"""
    unit_m: float = 0.6

    @classmethod
    def from_seed(cls, seed: int) -> Cloth:
        rng = np.random.default_rng([seed, 111])
        return cls(
            width=rng.uniform(0.75, 1.0),
            height=rng.uniform(1.1, 1.3),
            mass_kg=rng.uniform(0.15, 0.5),
            shear=rng.uniform(0.6, 1.5),
            decay_s=rng.uniform(5.0, 9.0),
            pull=float(rng.choice([-1, 1])) * rng.uniform(0.2, 0.35),
            unit_m=rng.uniform(0.4, 0.8),
            seed=seed,
        )

    def build(self) -> BuiltScene:
        look, u = Look.from_seed(self.seed), self.unit_m
        columns, rows = self.num_columns, self.num_rows
        dx, dz = self.width * u / (columns - 1), self.height * u / (rows - 1)
        left, top = -0.5 * self.width * u, 0.68 * u
        share = self.mass_kg / (columns * (rows - 1))
        # cubes of side dx carry the air's drag, 3 pi viscosity dx v
        moment = share * dx**2 / 6
        viscosity = 2 * share / (3 * math.pi * dx * self.decay_s)
        unit = self.mass_kg * 9.81 / (self.height * u)
        watched = {
            (rows // 2, columns // 2): "center",
            (rows - 2, 1): "low_left",
            (rows - 2, columns - 2): "low_right",
            (rows // 3, columns - 2): "high_right",
            (2 * rows // 3, 1): "side_left",
        }
        bodies, tendons = [], []
        for row in range(rows):
            for column in range(columns):
                place = f'pos="{left + column * dx:.6g} 0 {top - row * dz:.6g}"'
                spot = f'<site name="n{row}_{column}" pos="0 0 0" size="0.001" rgba="0 0 0 0"/>'
                if row == 0:
                    bodies.append(f'<body name="b{row}_{column}" {place}>{spot}</body>')
                    continue
                joints = slide(f"x{row}_{column}", (1, 0)) + slide(f"z{row}_{column}", (0, 1))
                inertia = (
                    f'<inertial pos="0 0 0" mass="{share:.8g}" diaginertia="{moment:.6g} {moment:.6g} {moment:.6g}"/>'
                )
                name = watched.get((row, column))
                mark = "" if name is None else site(name, (0, 0), 0.0)
                bodies.append(f'<body name="b{row}_{column}" {place}>{inertia}{joints}{spot}{mark}</body>')
        for row in range(rows):
            for column in range(columns):
                for down, right, measure in (
                    (0, 1, self.thread),
                    (1, 0, self.thread),
                    (1, 1, self.shear),
                    (1, -1, self.shear),
                ):
                    other = (row + down, column + right)
                    if other[0] >= rows or not 0 <= other[1] < columns or (row == 0 and down == 0):
                        continue
                    count = columns if down else rows
                    stiffness = measure * unit * (rows - 1 if down else columns - 1) / count
                    length = math.hypot(down * dz, right * dx)
                    tendons.append(
                        f'<spatial stiffness="{stiffness:.8g}" damping="{stiffness * 2e-3:.8g}" '
                        f'springlength="{length:.8g}" rgba="0 0 0 0" width="0.0001">'
                        f'<site site="n{row}_{column}"/><site site="n{other[0]}_{other[1]}"/></spatial>'
                    )
        bar = plate((0, top + 0.02 * u), (0.52 * self.width * u + 0.05 * u, 0.03 * u), 0.03 * u, look.color(3), 0.0)
        points = tuple(watched.values())
        xml = document(
            look,
            u,
            bar + "".join(bodies),
            points=points,
            extra=self._surface(look) + f"<tendon>{''.join(tendons)}</tendon>",
            viscosity=viscosity,
            step_s=1e-3,
        )
        weight = self.mass_kg * 9.81
        pulls = (Pull("low_left", (0.6 * self.pull * weight, 0.0)), Pull("low_right", (0.4 * self.pull * weight, 0.0)))
        return BuiltScene(xml, u, points, pulls=pulls, step_s=1e-3)

    def _surface(self, look: Look) -> str:
        """The cloth as MuJoCo draws it: triangles between the masses, without forces of their own."""
        columns, rows = self.num_columns, self.num_rows
        names = " ".join(f"b{row}_{column}" for row in range(rows) for column in range(columns))
        vertices = " ".join(["0 0 0"] * (rows * columns))
        triangles = []
        for row in range(rows - 1):
            for column in range(columns - 1):
                k = row * columns + column
                triangles.append(f"{k} {k + columns} {k + 1} {k + 1} {k + columns} {k + columns + 1}")
        places = " ".join(
            f"{column / (columns - 1):.5g} {row / (rows - 1):.5g}" for row in range(rows) for column in range(columns)
        )
        first, second = (look.color(k).rsplit(" ", 1)[0] for k in (0, 1))
        return f"""<asset>
  <texture name="weave" type="2d" builtin="checker" rgb1="{first}" rgb2="{second}" width="256" height="256"/>
  <material name="weave" texture="weave" texrepeat="3 4" specular="0.02" shininess="0"/>
</asset>
<deformable>
  <flex name="cloth" dim="2" body="{names}" vertex="{vertices}" element="{" ".join(triangles)}"
    texcoord="{places}" material="weave" radius="0.001">
    <elasticity young="1e-3" poisson="0.1" thickness="1e-3" elastic2d="stretch"/>
  </flex>
</deformable>"""
