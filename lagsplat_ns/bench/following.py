"""Body points of a trained scene, read off the Gaussians around them, and ways to drive a simulator like the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from lagsplat_ns.bench.truth import TruePush, Truth
from lagsplat_ns.evaluation import NEIGHBORHOOD
from lagsplat_ns.simulator import Simulator
from lagsplat_ns.types import State

__all__ = ["BodyPoints", "advance", "after_clip", "answer_states", "put_at_rest"]

INPUT_STEP_S = 1 / 120  # inputs are held this long, at the value in the middle


class BodyPoints:
    """Points of the moving thing, each followed by the rigid motion that fits the Gaussians around it best.

    pixels [P, 2]: where the points are at the simulator's present state. The same rule as `evaluation.Point`, for many
    points and states at once.
    """

    def __init__(self, sim: Simulator, pixels: Float64[np.ndarray, "P 2"]) -> None:
        self._sim = sim
        here = self._positions(sim.state.q[None])[0]
        distances = (here[None] - torch.from_numpy(np.array(pixels))[:, None]).norm(dim=-1)
        closeness = -0.5 * (distances / sim.filming_camera.pixels_per_unit / NEIGHBORHOOD) ** 2
        closeness = closeness.masked_fill(~sim.scene.is_moving.cpu(), -torch.inf)
        weights = torch.softmax(closeness, dim=-1)
        self._used = torch.nonzero(weights.amax(0) > 1e-7)[:, 0]
        self._weights = weights[:, self._used] / weights[:, self._used].sum(-1, keepdim=True)
        then = here[self._used]
        centers = self._weights @ then
        self._arms = torch.from_numpy(np.array(pixels)) - centers  # [P, 2]
        self._spokes = then[None] - centers[:, None]  # [P, K, 2]

    @torch.no_grad()
    def paths(self, q: Float64[Tensor, "T d"]) -> Float64[np.ndarray, "T P 2"]:
        """Pixels of the points at many states."""
        now = torch.cat([self._positions(part)[:, self._used] for part in q.split(32)])  # [T, K, 2]
        centers = torch.einsum("pk,tkc->tpc", self._weights, now)
        spokes = now[:, None] - centers[:, :, None]  # [T, P, K, 2]
        a = self._spokes
        cosine = torch.einsum("pk,pkc,tpkc->tp", self._weights, a, spokes)
        sine = torch.einsum("pk,tpk->tp", self._weights, a[..., 0] * spokes[..., 1] - a[..., 1] * spokes[..., 0])
        angle = torch.atan2(sine, cosine)
        x, y = self._arms.unbind(-1)
        turned = torch.stack([angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y], dim=-1)
        return (centers + turned).numpy()

    def velocities(self, states: Sequence[State]) -> Float64[np.ndarray, "T P 2"]:
        """Velocities J qd of the points at states, pixels per second: differences over a short way along qd."""
        h = 1e-3
        ahead = torch.stack([state.q + h * state.qd for state in states])
        behind = torch.stack([state.q - h * state.qd for state in states])
        return (self.paths(ahead) - self.paths(behind)) / (2 * h)

    def jacobian(self, q: Float64[Tensor, " d"]) -> Float64[np.ndarray, "P 2 d"]:
        """Pixels per unit of every coordinate."""
        h = 1e-3
        shifts = h * torch.eye(len(q), dtype=torch.float64)
        difference = self.paths(q + shifts) - self.paths(q - shifts)
        return np.moveaxis(difference, 0, -1) / (2 * h)

    def _positions(self, q: Tensor) -> Tensor:
        scene = self._sim.scene
        with torch.no_grad():
            means = scene.means(q.to(device=scene.is_moving.device, dtype=torch.float32))
        return self._sim.filming_camera.project(means.double().cpu())


def put_at_rest(sim: Simulator, truth: Truth) -> None:
    """The state from which pushes begin: the rest state, or the clip's last frame stopped where nothing pulls back."""
    sim.rest()
    if truth.rests_anywhere:
        sim.seek(sim.clip_end_s)
        sim.state.qd.zero_()


def after_clip(sim: Simulator, truth: Truth, seconds: float, rate: int = 30) -> tuple[np.ndarray, Tensor]:
    """Times (seconds since the first frame) and states q [T, d] after the clip, under the true inputs."""
    times = sim.clip_end_s + np.arange(1, round(seconds * rate) + 1) / rate
    rows = []
    sim.seek(sim.clip_end_s)
    for time_s in times:
        advance(sim, truth, float(time_s))
        rows.append(sim.state.q.clone())
    return times, torch.stack(rows)


def advance(sim: Simulator, truth: Truth, until_s: float) -> None:
    """Lets the time pass up to `until_s`, under the true inputs where there are any."""
    if not truth.is_forced:
        if until_s > sim.time_s:
            sim.step(until_s - sim.time_s)
        return
    while until_s - sim.time_s > 1e-9:
        step = min(INPUT_STEP_S, until_s - sim.time_s)
        sim.step(step, inputs=truth.inputs_at(sim.time_s + step / 2))


def answer_states(
    sim: Simulator, truth: Truth, push: TruePush, times_s: Float64[np.ndarray, " T"], gain: float, strength: float = 1.0
) -> Float64[Tensor, "T d"]:
    """States q [T, d] after a push from rest at time zero, the force times gain and strength."""
    put_at_rest(sim, truth)
    grip, begin = sim.grab(push.pixel), sim.time_s
    force = (gain * strength * push.force[0], gain * strength * push.force[1])
    rows, now = [], 0.0
    for time_s in times_s:
        for edge, pulls in ((push.start_s, []), (push.end_s, [(grip, force)]), (np.inf, [])):
            until = min(float(time_s), edge)
            if until > now + 1e-12:
                sim.step(until - now, forces=pulls)
                now = until
        rows.append(sim.state.q.clone())
    sim.time_s = begin + now
    return torch.stack(rows)
