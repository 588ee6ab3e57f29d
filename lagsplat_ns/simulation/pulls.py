"""The motion of a mechanism that is pulled at: compiled where a pull is a weight on its motion vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.simulation.grip import Grip, picture_jacobian
from lagsplat_ns.simulation.held import HeldMotion, HeldOnBases, SimulatedScene, held_motion
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.types import State

__all__ = ["PulledMotion", "pull_matrix"]

Pull = tuple[Grip, Float[Tensor, " 2"]]
_MAX_KEPT = 16


@dataclass(frozen=True)
class _Hold:
    """A grip with what is needed to pull at it; `matrix` [2, 4 P] as from `pull_matrix`, where there is one."""

    grip: Grip
    versions: tuple[int, ...]
    metric: nn.Module
    motion: HeldMotion
    matrix: Tensor | None


class PulledMotion:
    """Steps of a scene's mechanism under constant pulls on grips and constant inputs."""

    def __init__(self, scene: SimulatedScene, stepper: Stepper) -> None:
        self._scene, self._stepper = scene, stepper
        self._holds: list[_Hold] = []

    @torch.no_grad()
    def advance(
        self, mechanism: Mechanism, state: State, dt: float, pulls: Sequence[Pull], inputs: Float[Tensor, " m"] | None
    ) -> State:
        """The state `dt` seconds later, or earlier for dt < 0; pulls in picture units.

        Raises: FloatingPointError if the motion cannot be followed.
        """
        holds = [(self._hold(grip, mechanism), pull) for grip, pull in pulls if not grip.is_empty]
        compiled = self._stepper.compiled(mechanism)
        matrices = [hold.matrix for hold, _ in holds if hold.matrix is not None]
        if compiled is not None and len(matrices) == len(holds):
            weights = [pull @ matrix for (_, pull), matrix in zip(holds, matrices, strict=True)]
            weight = torch.stack(weights).sum(0) if weights else None
            return self._stepper.advance_compiled(compiled, state, dt, inputs, weight=weight)

        def acceleration(now: State, _: float) -> Tensor:
            force = None
            if holds:
                parts = [picture_jacobian(hold.grip, *hold.motion(now.q)).T @ pull for hold, pull in holds]
                force = torch.stack(parts).sum(0)
            return forward_dynamics(mechanism, now, generalized_force=force, inputs=inputs)

        return self._stepper.advance(state, dt, acceleration)

    def _hold(self, grip: Grip, mechanism: Mechanism) -> _Hold:
        """What pulling at a grip takes, kept until the scene or the metric is another."""
        versions = _versions(self._scene)
        for hold in self._holds:
            if hold.grip is grip and hold.metric is mechanism.metric and hold.versions == versions:
                return hold
        motion = held_motion(self._scene, grip.indices)
        hold = _Hold(grip, versions, mechanism.metric, motion, pull_matrix(grip, motion, mechanism))
        if versions:
            self._holds = [hold, *self._holds[: _MAX_KEPT - 1]]
        return hold


def _versions(scene: object) -> tuple[int, ...]:
    """Numbers that change when a tensor of the scene does; none for a scene that is no module."""
    if not isinstance(scene, nn.Module):
        return ()
    return tuple(n for p in scene.parameters() for n in (id(p), p._version))


def pull_matrix(grip: Grip, motion: HeldMotion, mechanism: Mechanism) -> Float[Tensor, "2 P4"] | None:
    """The matrix W with B(q) = W dm/dq for all q, or None where there is none; see `picture_jacobian`.

    There is one where the camera looks straight at the plane in which the held Gaussians move, because their distances
    from it then never change, and where the mechanism's inertia is about the very motion vector that moves them.

    Law: tests/test_held_motion.py, the same as `picture_jacobian`.
    """
    turn = grip.camera.camera_from_world[:3, :3].double()
    if not isinstance(motion, HeldOnBases) or float(turn[2, 0].abs() + turn[2, 2].abs()) > 1e-12:
        return None
    if not _are_equal(getattr(mechanism.metric, "bases", None), motion.bases):
        return None
    away = turn[2, 1] * motion.rest[:, 1] + grip.camera.camera_from_world[2, 3].double()
    per_unit = grip.weights.double() / away / grip.camera.pixels_per_unit
    focal = torch.tensor([[grip.camera.fx], [grip.camera.fy]], dtype=torch.float64)
    return torch.einsum("ab,k,kbm->am", focal * turn[:2, [0, 2]], per_unit, motion.plane)


def _are_equal(bases: nn.Module | None, others: nn.Module) -> bool:
    """Whether two motion bases of any precision hold the same numbers."""
    if type(bases) is not type(others):
        return False
    assert bases is not None
    mine, theirs = bases.state_dict(), others.state_dict()
    return mine.keys() == theirs.keys() and all(
        value.shape == theirs[name].shape and torch.equal(value.double(), theirs[name].double())
        for name, value in mine.items()
    )
