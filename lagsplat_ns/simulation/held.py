"""The motion of a few chosen Gaussians of a scene: what a force on a grip asks for many times in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.gaussians.bases import MotionBases
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
        return _held_on_bases(scene, indices)
    held = indices.to(scene.is_moving.device)

    @torch.no_grad()
    def motion(q: Tensor) -> PointsAndJacobians:
        scene_q = q.to(device=scene.is_moving.device, dtype=torch.float32)
        return scene.means(scene_q)[held].double().cpu(), scene.jacobian(scene_q)[held].double().cpu()

    return motion


def _held_on_bases(scene: LatentScene, indices: Int[Tensor, " K"]) -> HeldMotion:
    """x_i = o + A_i m(q) and J_i = A_i dm/dq for the chosen rows of A."""
    spec = scene.spec
    bases = MotionBases(spec.latent_dim, spec.num_bases, spec.degree, spec.has_pivots)
    bases.load_state_dict(scene.bases.state_dict())
    bases = bases.cpu().double().requires_grad_(False)
    placements = scene.placements().detach()[indices.to(scene.is_moving.device)].cpu().double()
    depths = scene.gauss_params["means"].detach()[indices.to(scene.is_moving.device), 1].cpu().double()
    # rows x, y, z of the world; the plane has x and z, depth stays
    spread = torch.zeros(len(indices), 3, placements.shape[-1], dtype=torch.float64)
    spread[:, 0], spread[:, 2] = placements[:, 0], placements[:, 1]
    rest = torch.zeros(len(indices), 3, dtype=torch.float64)
    rest[:, 0], rest[:, 1], rest[:, 2] = bases.origin[0], depths, bases.origin[1]

    @torch.no_grad()
    def motion(q: Tensor) -> PointsAndJacobians:
        return rest + spread @ bases(q), spread @ bases.jacobian(q)

    return motion
