"""Pieces of MuJoCo's scene description: shapes, joints, points to watch, and the room around them.

Everything moves in the plane y = 0, x to the right and z up; the camera looks along +y. Lengths are meters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

__all__ = [
    "CAMERA_DISTANCE",
    "Look",
    "capsule",
    "disc",
    "document",
    "hinge",
    "plate",
    "site",
    "slide",
    "wall_texture",
]

Pair = tuple[float | int, float | int]
"""(x, z) in meters"""

CAMERA_DISTANCE = 10.0  # picture units; a picture's larger side is two units
TEXTURE_SIZE = 512

_PALETTES = (
    ((0.80, 0.24, 0.20), (0.93, 0.76, 0.35), (0.20, 0.34, 0.55), (0.72, 0.72, 0.70)),
    ((0.16, 0.45, 0.40), (0.90, 0.55, 0.25), (0.62, 0.22, 0.35), (0.30, 0.30, 0.34)),
    ((0.24, 0.32, 0.66), (0.86, 0.84, 0.76), (0.78, 0.42, 0.16), (0.48, 0.36, 0.28)),
)
_WALLS = ((0.78, 0.80, 0.80), (0.70, 0.66, 0.58), (0.42, 0.48, 0.52))


@dataclass(frozen=True)
class Look:
    """Colors of a scene: four for things, one for the wall and its pattern; where the light comes from."""

    colors: tuple[tuple[float, float, float], ...]
    wall: tuple[float, float, float]
    pattern: str
    """plain, plaster or planks"""
    light: tuple[float, float, float]
    seed: int

    @classmethod
    def from_seed(cls, seed: int) -> Look:
        """Plain wall for seed 0, plaster for 1, planks for 2, and so on; colors and light vary."""
        rng = np.random.default_rng([seed, 11])
        palette = _PALETTES[int(rng.integers(len(_PALETTES)))] if seed > 2 else _PALETTES[seed % 3]
        shifted = [tuple(float(c) for c in np.clip(np.array(p) + rng.normal(0, 0.03, 3), 0.03, 0.97)) for p in palette]
        light = (float(rng.uniform(-0.6, 0.6)), 1.0, float(rng.uniform(-0.9, -0.4)))
        pattern = ("plain", "plaster", "planks")[seed % 3]
        return cls(tuple(shifted), _WALLS[seed % 3], pattern, light, seed)  # type: ignore[arg-type]

    def color(self, k: int, shade: float = 1.0) -> str:
        """The k-th color as MJCF text, darker for shade < 1."""
        red, green, blue = (min(1.0, shade * c) for c in self.colors[k % len(self.colors)])
        return f"{red:.4f} {green:.4f} {blue:.4f} 1"


def wall_texture(look: Look) -> UInt8[np.ndarray, "S S 3"]:
    """The wall's picture: plain, soft blotches, or boards with grain."""
    rng = np.random.default_rng([look.seed, 23])
    base = np.broadcast_to(np.array(look.wall), (TEXTURE_SIZE, TEXTURE_SIZE, 3)).copy()
    if look.pattern == "plaster":
        base *= 1.0 + 0.16 * _blotches(rng, (96, 24, 8), (1.0, 1.0))[..., None]
    elif look.pattern == "planks":
        boards = np.arange(TEXTURE_SIZE) * 9 // TEXTURE_SIZE
        base *= (1.0 + rng.uniform(-0.12, 0.12, 9)[boards])[:, None, None]
        base *= 1.0 + 0.10 * _blotches(rng, (24, 8), (0.25, 4.0))[..., None]
        base[np.diff(boards, prepend=0) > 0] *= 0.6
    return (np.clip(base, 0.0, 1.0) * 255).astype(np.uint8)


def _blotches(rng: np.random.Generator, widths: Sequence[float | int], stretch: tuple[float, float]) -> np.ndarray:
    """Smooth noise in about [-1, 1] of several widths in texels."""
    from scipy.ndimage import gaussian_filter

    total = np.zeros((TEXTURE_SIZE, TEXTURE_SIZE))
    for width in widths:
        noise = gaussian_filter(
            rng.normal(size=total.shape), (0.3 * width * stretch[0], 0.3 * width * stretch[1]), mode="wrap"
        )
        total += noise / np.abs(noise).max()
    return total / len(widths)


# ---- shapes
def capsule(start: Pair, end: Pair, radius: float, color: str, mass: float, y: float = 0.0) -> str:
    """A rod with round ends from (x, z) to (x, z)."""
    return (
        f'<geom type="capsule" fromto="{start[0]:.6g} {y:.6g} {start[1]:.6g} {end[0]:.6g} {y:.6g} {end[1]:.6g}" '
        f'size="{radius:.6g}" rgba="{color}" mass="{mass:.8g}"/>'
    )


def disc(center: Pair, radius: float, half_depth: float, color: str, mass: float, y: float = 0.0) -> str:
    """A round plate facing the camera."""
    return (
        f'<geom type="cylinder" pos="{center[0]:.6g} {y:.6g} {center[1]:.6g}" zaxis="0 1 0" '
        f'size="{radius:.6g} {half_depth:.6g}" rgba="{color}" mass="{mass:.8g}"/>'
    )


def plate(
    center: Pair,
    half_size: Pair,
    half_depth: float,
    color: str,
    mass: float,
    y: float = 0.0,
    turn: float = 0.0,
) -> str:
    """A box facing the camera, half sizes along x and z, turned in the picture plane by radians (x toward z)."""
    return (
        f'<geom type="box" pos="{center[0]:.6g} {y:.6g} {center[1]:.6g}" '
        f'size="{half_size[0]:.6g} {half_depth:.6g} {half_size[1]:.6g}" euler="0 {-turn:.6g} 0" '
        f'rgba="{color}" mass="{mass:.8g}"/>'
    )


def site(name: str, position: Pair, front: float) -> str:
    """A body point to watch and to push, on the surface that the camera sees (`front` before the plane)."""
    return f'<site name="{name}" pos="{position[0]:.6g} {-front:.6g} {position[1]:.6g}" size="0.001" rgba="0 0 0 0"/>'


# ---- joints
def hinge(name: str, *, damping: float = 0.0, stiffness: float = 0.0, spring_angle: float = 0.0) -> str:
    """A joint in the plane; positive angles carry what hangs down to the right."""
    return (
        f'<joint name="{name}" type="hinge" axis="0 -1 0" damping="{damping:.8g}" stiffness="{stiffness:.8g}" '
        f'springref="{spring_angle:.8g}"/>'
    )


def slide(name: str, axis: Pair, *, damping: float = 0.0, stiffness: float = 0.0) -> str:
    """A straight guide along (x, z)."""
    return (
        f'<joint name="{name}" type="slide" axis="{axis[0]:.6g} 0 {axis[1]:.6g}" damping="{damping:.8g}" '
        f'stiffness="{stiffness:.8g}"/>'
    )


def document(
    look: Look,
    unit_m: float,
    bodies: str,
    *,
    points: Sequence[str],
    inputs: str = "",
    extra: str = "",
    viscosity: float = 0.0,
    step_s: float = 5e-4,
) -> str:
    """A whole scene: room, camera, bodies, and two actuators per watched point that push it along world axes.

    inputs: actuators of the measured inputs, which come first. extra: further sections (tendons, deformables).
    """
    pushes = "".join(
        f'<general name="push_{axis}_{name}" site="{name}" refsite="world_origin" gear="{gear} 0 0 0"/>'
        for name in points
        for axis, gear in (("x", "1 0 0"), ("z", "0 0 1"))
    )
    light = " ".join(f"{value:.4g}" for value in look.light)
    return f"""<mujoco>
<compiler angle="radian" autolimits="true" eulerseq="xyz"/>
<option timestep="{step_s:.8g}" integrator="RK4" gravity="0 0 -9.81" viscosity="{viscosity:.8g}">
  <flag contact="disable" energy="enable"/>
</option>
<size memory="16M"/>
<visual>
  <global offwidth="2048" offheight="2048"/>
  <headlight ambient="0.36 0.36 0.36" diffuse="0.28 0.28 0.28" specular="0.05 0.05 0.05"/>
  <map znear="0.01" zfar="100"/>
  <quality offsamples="4"/>
</visual>
<asset>
  <texture name="wall" type="2d" builtin="flat" rgb1="0.5 0.5 0.5" width="{TEXTURE_SIZE}" height="{TEXTURE_SIZE}"/>
  <material name="wall" texture="wall" texrepeat="1 1" specular="0" shininess="0" reflectance="0"/>
</asset>
<worldbody>
  <light directional="true" dir="{light}" pos="0 {-4 * unit_m:.6g} {4 * unit_m:.6g}" castshadow="false"
    diffuse="0.5 0.5 0.48" specular="0.15 0.15 0.15"/>
  <camera name="film" pos="0 {-CAMERA_DISTANCE * unit_m:.6g} 0" xyaxes="1 0 0 0 0 1" fovy="10"/>
  <geom name="wall" type="plane" pos="0 {0.6 * unit_m:.6g} 0" zaxis="0 -1 0"
    size="{1.3 * unit_m:.6g} {1.3 * unit_m:.6g} 0.1" material="wall"/>
  <site name="world_origin" pos="0 0 0" size="0.001" rgba="0 0 0 0"/>
  {bodies}
</worldbody>
{extra}
<actuator>{inputs}{pushes}</actuator>
</mujoco>"""
