"""A simulator against the truth: errors of forecasts, and of answers to pushes that a clip never showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from lagsplat_ns.simulator import Simulator

__all__ = ["Forecast", "Point", "PushAnswers", "answer", "evaluate_forecast", "evaluate_pushes", "path_error"]

NEIGHBORHOOD = 0.06  # picture units: how far around a point Gaussians are asked where it went


@runtime_checkable
class KnownPush(Protocol):
    """A constant force (picture units, x right, y down) on a body point from `start_s` to `end_s`, from rest."""

    @property
    def pixel(self) -> tuple[float, float]: ...
    @property
    def force(self) -> tuple[float, float]: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    def response(self, times_s: Float64[np.ndarray, " T"], /) -> Float64[np.ndarray, "T 2"]:
        """True path of the watched point, pixels."""
        ...


@dataclass(frozen=True)
class Forecast:
    """How well one point was forecast: times, true and simulated paths [T, 2] in pixels, error over range."""

    times_s: Float64[np.ndarray, " T"]
    true: Float64[np.ndarray, "T 2"]
    simulated: Float64[np.ndarray, "T 2"]
    error: float
    frozen_error: float
    """what the same figure is for a thing that stops where the clip ends"""


@dataclass(frozen=True)
class PushAnswers:
    """Answers to pushes from rest: the gain found on the first one, then path errors (over range) of all."""

    gain: float
    errors: list[float]
    times_s: Float64[np.ndarray, " T"]
    true: list[Float64[np.ndarray, "T 2"]]
    simulated: list[Float64[np.ndarray, "T 2"]]

    @property
    def median_unseen_error(self) -> float:
        """Median path error of the pushes that did not set the gain."""
        return float(np.median(self.errors[1:]))


class Point:
    """A point of the moving thing, followed by the Gaussians around it: the rigid motion that fits them best.

    pixel: where the point is when it is taken, in pixels of the filming camera.
    """

    def __init__(self, sim: Simulator, pixel: tuple[float, float]) -> None:
        self._sim, self._pixel = sim, torch.tensor(pixel, dtype=torch.float64)
        moving = sim.scene.is_moving
        here = self._pixels()
        distance = (here - self._pixel).norm(dim=-1) / sim.filming_camera.pixels_per_unit
        weights = torch.exp(-0.5 * (distance / NEIGHBORHOOD) ** 2) * moving.cpu()
        self._weights = weights / weights.sum()
        self._then = here

    def now(self) -> Float64[Tensor, " 2"]:
        """Where the point is now, pixels."""
        now, w = self._pixels(), self._weights[:, None]
        center_then, center_now = (w * self._then).sum(0), (w * now).sum(0)
        a, b = self._then - center_then, now - center_now
        cosine = (w * a * b).sum()
        sine = (w[:, 0] * (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])).sum()
        angle = torch.atan2(sine, cosine)
        arm = self._pixel - center_then
        turned = torch.stack([angle.cos() * arm[0] - angle.sin() * arm[1], angle.sin() * arm[0] + angle.cos() * arm[1]])
        return center_now + turned

    def _pixels(self) -> Float64[Tensor, "N 2"]:
        return self._sim.filming_camera.project(self._sim.means().double().cpu())


def path_error(simulated: Float64[np.ndarray, "T 2"], true: Float64[np.ndarray, "T 2"]) -> float:
    """Root mean square distance between two paths over the range (largest extent) of the true one."""
    extent = np.linalg.norm(true[:, None] - true[None], axis=-1).max()
    return float(np.sqrt(((simulated - true) ** 2).sum(-1).mean()) / extent)


def evaluate_forecast(
    sim: Simulator,
    truth: Callable[[Float64[np.ndarray, " T"]], Float64[np.ndarray, "T 2"]],
    *,
    seconds: float = 5.0,
    frames_per_second: float = 30.0,
) -> Forecast:
    """The seconds after the clip against a known path of one point (pixels, times from the clip's first frame)."""
    times = sim.clip_end_s + np.arange(1, round(seconds * frames_per_second) + 1) / frames_per_second
    sim.seek(0.0)
    x, y = truth(np.zeros(1))[0]
    point = Point(sim, (float(x), float(y)))
    rows = []
    for time in times:
        sim.seek(float(time))
        rows.append(point.now().numpy())
    simulated, true = np.stack(rows), truth(times)
    frozen = np.broadcast_to(truth(np.array([sim.clip_end_s])), true.shape)
    return Forecast(times, true, simulated, path_error(simulated, true), path_error(frozen, true))


def answer(
    sim: Simulator,
    push: KnownPush,
    watch: tuple[float, float],
    times_s: Float64[np.ndarray, " T"],
    gain: float = 1.0,
) -> Float64[np.ndarray, "T 2"]:
    """The simulated path, pixels, of the point that is at `watch` at rest, pushed from rest at time zero."""
    sim.rest()
    grip, point = sim.grab(push.pixel), Point(sim, watch)
    force = (gain * push.force[0], gain * push.force[1])
    rows = []
    for time in times_s:
        for edge, pulls in ((push.start_s, []), (push.end_s, [(grip, force)]), (np.inf, [])):
            until = min(float(time), edge)
            if until > sim.time_s:
                sim.step(until - sim.time_s, forces=pulls)
        rows.append(point.now().numpy())
    return np.stack(rows)


def evaluate_pushes(
    sim: Simulator,
    pushes: Sequence[KnownPush],
    watch: tuple[float, float],
    *,
    seconds: float = 5.0,
    frames_per_second: float = 30.0,
) -> PushAnswers:
    """Answers to pushes against the truth; the first push sets the one unknown gain of all forces.

    watch: where the point whose path `KnownPush.response` gives is at rest, pixels.
    """
    times = np.arange(1, round(seconds * frames_per_second) + 1) / frames_per_second
    true = [push.response(times) for push in pushes]
    gain = 1.0
    for _ in range(6):  # secant steps on a response that is nearly proportional to the force
        here, more = (answer(sim, pushes[0], watch, times, factor * gain) for factor in (1.0, 1.01))
        slope = (more - here) / 0.01
        change = float((slope * (true[0] - here)).sum() / (slope**2).sum())
        gain *= 1.0 + float(np.clip(change, -0.5, 1.0))
        if abs(change) < 1e-5:
            break
    simulated = [answer(sim, push, watch, times, gain) for push in pushes]
    errors = [path_error(s, t) for s, t in zip(simulated, true, strict=True)]
    return PushAnswers(gain, errors, times, true, simulated)
