"""The motion of a few chosen Gaussians of a scene: what a force on a grip asks for many times in every step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.types import Gaussians

PointsAndJacobians = tuple[Float[Tensor, "K 3"], Float[Tensor, "K 3 d"]]
HeldMotion = Callable[[Tensor], PointsAndJacobians]


@runtime_checkable
class RecordedPath(Protocol):
    """The path of one clip: times_s [T] seconds, q [T, d], qd [T, d] 1/s, the first `num_train` frames were seen."""

    @property
    def times_s(self) -> Tensor: ...
    @property
    def q(self) -> Tensor: ...
    @property
    def qd(self) -> Tensor: ...
    @property
    def num_train(self) -> int: ...


@runtime_checkable
class SimulatedScene(Protocol):
    """What a scene must offer to be simulated: posed Gaussians as functions of q, a mechanism, recorded paths."""

    @property
    def is_moving(self) -> Bool[Tensor, " N"]: ...
    @property
    def mechanism(self) -> Mechanism | None: ...
    @property
    def paths(self) -> Sequence[RecordedPath]: ...
    def gaussians(self, q: Float[Tensor, " d"], /) -> Gaussians: ...
    def means(self, q: Float[Tensor, "*batch d"], /) -> Float[Tensor, "*batch N 3"]: ...
    def jacobian(self, q: Float[Tensor, " d"], /) -> Float[Tensor, "N 3 d"]: ...


@torch.no_grad()
def held_motion(scene: SimulatedScene, indices: Int[Tensor, " K"]) -> HeldMotion:
    """The function from q [d] to positions [K, 3] and their Jacobians [K, 3, d], in double precision on the CPU.

    Scenes on motion bases are evaluated for the chosen Gaussians alone; any other scene as a whole.

    Law: tests/test_held_motion.py, the same as the scene's own means and Jacobian.
    """
    if isinstance(scene, LatentScene) and scene.conditional is None:
        return HeldOnBases(scene, indices)
    held = indices.to(scene.is_moving.device)

    @torch.no_grad()
    def motion(q: Tensor) -> PointsAndJacobians:
        scene_q = q.to(device=scene.is_moving.device, dtype=torch.float32)
        return scene.means(scene_q)[held].double().cpu(), scene.jacobian(scene_q)[held].double().cpu()

    return motion


class HeldOnBases:
    """x_i = o + A_i m(q) and J_i = A_i dm/dq for the chosen rows of A of a scene on motion bases.

    plane [K, 2, 4 P]: A in the picture plane; rest [K, 3]: what does not move, in its second column the depths.
    """

    def __init__(self, scene: LatentScene, indices: Int[Tensor, " K"]) -> None:
        chosen = indices.to(scene.is_moving.device)
        self.bases = copy.deepcopy(scene.bases).cpu().double().requires_grad_(False)
        self.plane = scene.placements().detach()[chosen].cpu().double()
        self.rest = torch.zeros(len(indices), 3, dtype=torch.float64)
        self.rest[:, 0], self.rest[:, 2] = self.bases.origin[0], self.bases.origin[1]
        self.rest[:, 1] = scene.gauss_params["means"].detach()[chosen, 1].cpu().double()
        # rows x, y, z of the world; the plane has x and z, depth stays
        self._spread = torch.zeros(len(indices), 3, self.plane.shape[-1], dtype=torch.float64)
        self._spread[:, 0], self._spread[:, 2] = self.plane[:, 0], self.plane[:, 1]

    @torch.no_grad()
    def __call__(self, q: Tensor) -> PointsAndJacobians:
        return self.rest + self._spread @ self.bases(q), self._spread @ self.bases.jacobian(q)
