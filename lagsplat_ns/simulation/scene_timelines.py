"""The unforced motion of a scene at any time: recorded inside its first clip, rolled out on both sides of it."""

from __future__ import annotations

import copy

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.simulation.input_log import LoggedMotion, input_logs
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.simulation.timeline import Timeline
from lagsplat_ns.types import State


class SceneTimelines:
    """States of a scene's first clip at any time in seconds; held still outside while no dynamics are known.

    Outside the clip measured inputs go on as long as their log does, and are zero beyond it.
    """

    def __init__(self, scene: LatentScene) -> None:
        path = scene.paths[0]
        self._mechanism = copy.deepcopy(scene.mechanism)
        if self._mechanism is not None:
            self._mechanism = self._mechanism.double().cpu().requires_grad_(False)
        logs = input_logs(scene)
        self._motion = LoggedMotion(logs[0] if logs else None, Stepper(method=scene.spec.integrator))
        self._timeline = Timeline(path.times_s.cpu(), path.q, path.qd, self._advance)

    def _advance(self, state: State, dt: float, time_s: float) -> State:
        return state if self._mechanism is None else self._motion.advance(self._mechanism, state, dt, time_s)

    def state(self, time_s: float) -> State:
        return self._timeline.state(time_s)
