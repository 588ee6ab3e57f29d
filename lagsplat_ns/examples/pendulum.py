"""A damped pendulum with known physics: its motion, its answers to pushes, and its clip.

The body is a rod and a disc of uniform area density and total mass 1. The angle theta is measured from straight down,
positive toward the right of the picture:

    I theta'' = -m g l_c sin(theta) - c theta' + (d p / d theta) . f

Lengths in the equation are picture units (the larger picture side spans 2), positions that people read are pixels
(origin top left, the center of the first pixel is (0.5, 0.5), y down), times are seconds since release.

Run `python -m lagsplat_ns.examples.pendulum OUT.mp4` to draw the clip again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float64

__all__ = [
    "CLIP_SECONDS",
    "FRAME_RATE",
    "SIZE",
    "Push",
    "angle",
    "body_path",
    "energy",
    "frame_times",
    "pushes",
    "truth",
]

SIZE = 256  # pixels, both sides
FRAME_RATE = 30
CLIP_SECONDS = 5.0
UNITS_PER_PIXEL = 2.0 / SIZE

PIVOT = (128.0, 50.0)  # pixels
BOB_DISTANCE = 138.0  # pivot to disc center, pixels
BOB_RADIUS = 22.0
ROD_HALF_WIDTH = 2.5
RELEASE_ANGLE = math.radians(46.0)
NATURAL_RATE = 4.55  # sqrt(m g l_c / I), 1/s
DAMPING_RATE = 0.25  # c / I, 1/s
_STEP = 1.0 / 2000.0


def _inertia() -> float:
    """Moment of inertia of rod and disc about the pivot for mass 1 and uniform area density, picture units."""
    rod_length = BOB_DISTANCE - BOB_RADIUS
    rod_area, disc_area = 2 * ROD_HALF_WIDTH * rod_length, math.pi * BOB_RADIUS**2
    rod = rod_area * (rod_length**2 / 3 + (2 * ROD_HALF_WIDTH) ** 2 / 12)
    disc = disc_area * (BOB_RADIUS**2 / 2 + BOB_DISTANCE**2)
    return (rod + disc) / (rod_area + disc_area) * UNITS_PER_PIXEL**2


INERTIA = _inertia()


@dataclass(frozen=True)
class Push:
    """A constant force at one point of the body, from `start_s` to `end_s`, on the pendulum hanging at rest.

    pixel: the point at rest, pixels; it moves with the body. force: (x right, y down), in mass 1 x picture units / s^2.
    """

    pixel: tuple[float, float]
    force: tuple[float, float]
    start_s: float
    end_s: float

    def torque(self, theta: float, time_s: float) -> float:
        """Generalized force J(theta)^T f on the angle."""
        if not self.start_s <= time_s < self.end_s:
            return 0.0
        right, down = (self.pixel[0] - PIVOT[0]) * UNITS_PER_PIXEL, (self.pixel[1] - PIVOT[1]) * UNITS_PER_PIXEL
        sin, cos = math.sin(theta), math.cos(theta)
        return self.force[0] * (down * cos - right * sin) - self.force[1] * (right * cos + down * sin)

    def response(self, times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T 2"]:
        """True path of the disc center under this push, pixels; time 0 is the hanging rest."""
        theta, _ = _motion(0.0, self, float(np.max(times_s)), np.asarray(times_s, dtype=np.float64))
        return body_path(theta)


def pushes() -> list[Push]:
    """Six pushes: the first sets the gain of a learned model, the other five test it."""
    return [
        Push((128.5, 188.5), (7.0, 0.0), 0.1, 0.3),
        Push((120.5, 182.5), (-6.0, 1.0), 0.1, 0.35),
        Push((136.5, 196.5), (4.5, -3.0), 0.2, 0.5),
        Push((128.5, 172.5), (-3.0, -2.0), 0.1, 0.6),
        Push((127.5, 120.5), (12.0, 0.0), 0.1, 0.3),
        Push((131.5, 203.5), (9.0, 4.0), 0.15, 0.4),
    ]


def frame_times() -> Float64[np.ndarray, " T"]:
    """Times of the clip's frames, seconds since release."""
    return np.arange(round(CLIP_SECONDS * FRAME_RATE), dtype=np.float64) / FRAME_RATE


def angle(times_s: Float64[np.ndarray, " T"]) -> tuple[Float64[np.ndarray, " T"], Float64[np.ndarray, " T"]]:
    """True angle [rad] and rate [rad/s] of the filmed swing at any times from 0 on, also past the clip's end."""
    times_s = np.asarray(times_s, dtype=np.float64)
    return _motion(RELEASE_ANGLE, None, float(np.max(times_s)), times_s)


def truth(times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T 2"]:
    """True path of the disc center in the filmed swing, pixels."""
    return body_path(angle(times_s)[0])


def body_path(
    theta: Float64[np.ndarray, " T"], pixel: tuple[float, float] = (PIVOT[0], PIVOT[1] + BOB_DISTANCE)
) -> Float64[np.ndarray, "T 2"]:
    """Positions at the angles theta of the body point that is at `pixel` when the pendulum hangs at rest, pixels."""
    right, down = pixel[0] - PIVOT[0], pixel[1] - PIVOT[1]
    sin, cos = np.sin(theta), np.cos(theta)
    return np.stack([PIVOT[0] + right * cos + down * sin, PIVOT[1] - right * sin + down * cos], axis=-1)


def energy(times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, " T"]:
    """True energy of the filmed swing, zero at rest: I theta'^2 / 2 + m g l_c (1 - cos theta)."""
    theta, rate = angle(times_s)
    return INERTIA * (rate**2 / 2 + NATURAL_RATE**2 * (1 - np.cos(theta)))


def _acceleration(push: Push | None) -> Callable[[float, float, float], float]:
    def acceleration(theta: float, rate: float, time_s: float) -> float:
        torque = 0.0 if push is None else push.torque(theta, time_s)
        return -(NATURAL_RATE**2) * math.sin(theta) - DAMPING_RATE * rate + torque / INERTIA

    return acceleration


@cache
def _grid(start_angle: float, push: Push | None, num_steps: int) -> Float64[np.ndarray, "K 3"]:
    """Angle, rate and acceleration on the integrator's own grid (classical Runge-Kutta of order 4)."""
    acceleration = _acceleration(push)
    theta, rate = start_angle, 0.0
    rows = np.empty((num_steps + 1, 3))
    for k in range(num_steps + 1):
        t = k * _STEP
        # The force is constant within a step: its value in the middle counts, so that its edges do not cost the order.
        mid = t + _STEP / 2
        a1 = acceleration(theta, rate, mid)
        rows[k] = theta, rate, acceleration(theta, rate, t)
        r2 = rate + _STEP / 2 * a1
        a2 = acceleration(theta + _STEP / 2 * rate, r2, mid)
        r3 = rate + _STEP / 2 * a2
        a3 = acceleration(theta + _STEP / 2 * r2, r3, mid)
        r4 = rate + _STEP * a3
        a4 = acceleration(theta + _STEP * r3, r4, mid)
        theta += _STEP / 6 * (rate + 2 * r2 + 2 * r3 + r4)
        rate += _STEP / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    rows.setflags(write=False)
    return rows


def _motion(
    start_angle: float, push: Push | None, end_s: float, times_s: Float64[np.ndarray, " T"]
) -> tuple[Float64[np.ndarray, " T"], Float64[np.ndarray, " T"]]:
    """Angle and rate at `times_s` by cubic Hermite interpolation of a fine Runge-Kutta solution."""
    if np.min(times_s) < 0:
        raise ValueError(
            f"times must not be negative, but the earliest is {np.min(times_s):.3f} s.\n"
            "  The pendulum is held before its release at 0 s: ask for times from 0 on."
        )
    rows = _grid(start_angle, push, math.ceil(max(end_s, _STEP) / _STEP) + 1)
    k = np.minimum((times_s / _STEP).astype(int), len(rows) - 2)
    s = (times_s / _STEP - k)[:, None]
    left, right = rows[k], rows[k + 1]
    h00, h10, h01, h11 = 2 * s**3 - 3 * s**2 + 1, s**3 - 2 * s**2 + s, -2 * s**3 + 3 * s**2, s**3 - s**2
    values = h00 * left[:, :2] + h10 * _STEP * left[:, 1:] + h01 * right[:, :2] + h11 * _STEP * right[:, 1:]
    return values[:, 0], values[:, 1]


def main(arguments: Iterable[str] | None = None) -> None:
    """Draws the clip and writes it where the first argument says."""
    from lagsplat_ns.examples.pendulum_clip import write_clip

    args = list(sys.argv[1:] if arguments is None else arguments)
    if len(args) != 1:
        raise SystemExit("usage: python -m lagsplat_ns.examples.pendulum OUT.mp4")
    path = Path(args[0])
    write_clip(path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
