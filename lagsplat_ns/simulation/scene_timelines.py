"""The unforced motion of a scene at any time: recorded inside its first clip, rolled out on both sides of it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.simulation.timeline import Timeline
from lagsplat_ns.types import State


class SceneTimelines:
    """States of a scene's first clip at any time in seconds; held still outside while no dynamics are known."""

    def __init__(self, scene: LatentScene) -> None:
        path = scene.paths[0]
        self._mechanism = copy.deepcopy(scene.mechanism)
        if self._mechanism is not None:
            self._mechanism = self._mechanism.double().cpu().requires_grad_(False)
        self._stepper = Stepper()
        self._timeline = Timeline(path.times_s.cpu(), path.q, path.qd, self._advance)

    def _advance(self, state: State, dt: float) -> State:
        mechanism = self._mechanism
        if mechanism is None:
            return state

        def acceleration(now: State) -> Tensor:
            inputs = now.q.new_zeros(mechanism.num_inputs) if mechanism.num_inputs else None
            return forward_dynamics(mechanism, now, inputs=inputs)

        with torch.no_grad():
            return self._stepper.advance(state, dt, acceleration)

    def state(self, time_s: float) -> State:
        return self._timeline.state(time_s)
