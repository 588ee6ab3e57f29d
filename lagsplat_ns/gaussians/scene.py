"""A filmed scene as Gaussians: a static background and moving primitives whose poses follow the latent coordinates."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import embedding

from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import LearnedMetric
from lagsplat_ns.dynamics.structure import structure_of
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import MotionBases, motion_vector, placement
from lagsplat_ns.gaussians.clusters import clustered_metric
from lagsplat_ns.gaussians.conditional import ConditionalDecoder
from lagsplat_ns.gaussians.metric import GeometricMetric
from lagsplat_ns.gaussians.rotations import plane_rotation_quaternion, quaternion_product
from lagsplat_ns.types import Gaussians

DecoderName = Literal["bases", "conditional"]
MetricName = Literal["induced", "learned"]
_TUPLES = ("parents", "input_names", "input_units", "input_logs")


@dataclass(frozen=True)
class SceneSpec:
    """Everything that fixes the shapes of a scene's tensors, as plain numbers and words (stored in checkpoints)."""

    num_moving: int
    num_static: int
    num_frames: int
    width: int
    height: int
    focal: float
    """the filming camera, pixels"""
    seconds_per_unit: float = 1.0
    """seconds per unit of a camera's time, which runs from 0 to 1 over the first clip"""
    num_clips: int = 1
    latent_dim: int = 1
    num_bases: int = 1
    degree: int = 1
    has_pivots: bool = False
    parents: tuple[int, ...] = ()
    """of parts tied into trees (see `ArticulatedBases`), one for every basis; none: bases that are polynomials of q"""
    decoder: DecoderName = "bases"
    metric: MetricName = "induced"
    """the inertia M(q): what the moving primitives imply, or a network"""
    is_embedded: bool = False
    """whether q exists: before, every frame carries free rigid motions of its own"""
    potential_degree: int = 8
    num_inputs: int = 0
    input_names: tuple[str, ...] = ()
    input_units: tuple[str, ...] = ()
    input_logs: tuple[Tensor, ...] = field(default=(), compare=False)
    """measured inputs of every clip, [K, 1 + m]: seconds since the first frame, then values; no rows without a log"""
    holds_inputs: bool = False
    """whether inputs stay what a row of the log says until the next one, instead of lying on the line between them"""
    has_mechanism: bool = False
    """whether the dynamics were identified"""
    integrator: str = "adaptive"
    """how motion is continued outside the clips: see `simulation.stepping.Stepper`"""


@dataclass(frozen=True)
class ClipPath:
    """The path of one clip in the latent space.

    times_s [T] seconds since the first frame; q [T, d]; qd [T, d] 1/s; frames from num_train on are forecast, not seen.
    """

    times_s: Float[Tensor, " T"]
    q: Float[Tensor, "T d"]
    qd: Float[Tensor, "T d"]
    num_train: int


class LatentScene(nn.Module):
    """All Gaussians of a scene as functions of q, with the mechanism that moves q.

    Moving primitives come first: x_i(q) = o + A_i m(q) in the picture plane y = 0 (see `MotionBases` and
    `ArticulatedBases`), rotations turn with the same motions, static primitives stay. `mechanism` is None until
    the dynamics were identified.
    """

    is_moving: Tensor
    frame_q: Tensor
    path_times_s: Tensor
    path_q: Tensor
    path_qd: Tensor
    path_clip: Tensor
    path_num_train: Tensor

    def __init__(self, spec: SceneSpec) -> None:
        super().__init__()
        self.spec = spec
        n, moving, frames = spec.num_moving + spec.num_static, spec.num_moving, spec.num_frames
        unit_quats = torch.zeros(n, 4)
        unit_quats[:, 0] = 1.0
        self.gauss_params = nn.ParameterDict(
            {
                "means": nn.Parameter(torch.zeros(n, 3)),
                "scales": nn.Parameter(torch.full((n, 3), -5.0)),
                "quats": nn.Parameter(unit_quats),
                "features_dc": nn.Parameter(torch.zeros(n, 3)),
                "features_rest": nn.Parameter(torch.zeros(n, 0, 3)),
                "opacities": nn.Parameter(torch.zeros(n, 1)),
                "skinning": nn.Parameter(torch.zeros(n, spec.num_bases)),
            }
        )
        self._keep_in_plane()
        self.bases: MotionBases | ArticulatedBases = (
            ArticulatedBases(spec.latent_dim, spec.parents)
            if spec.parents
            else MotionBases(spec.latent_dim, spec.num_bases, spec.degree, spec.has_pivots)
        )
        self.frame_motions = nn.Parameter(torch.zeros(frames, 3 * spec.num_bases))  # angles [P], translations [P, 2]
        self.conditional = ConditionalDecoder(moving, spec.latent_dim) if spec.decoder == "conditional" else None
        self.mechanism: Mechanism | None = self.new_mechanism() if spec.has_mechanism else None
        self.register_buffer("is_moving", torch.arange(n) < moving)
        self.register_buffer("frame_q", torch.zeros(frames, spec.latent_dim))
        self.register_buffer("path_times_s", torch.zeros(frames, dtype=torch.float64))
        self.register_buffer("path_q", torch.zeros(frames, spec.latent_dim))
        self.register_buffer("path_qd", torch.zeros(frames, spec.latent_dim))
        self.register_buffer("path_clip", torch.zeros(frames, dtype=torch.long))
        self.register_buffer("path_num_train", torch.zeros(spec.num_clips, dtype=torch.long))

    def _keep_in_plane(self) -> None:
        """Stop gradients that would move primitives out of the picture plane, which one fixed camera cannot see.

        Without this their depths, and with them who covers whom, would drift: Adam makes steps of full size out of
        gradients that are nothing but round-off.
        """
        free = {"means": (1.0, 0.0, 1.0), "scales": (1.0, 0.0, 1.0), "quats": (1.0, 0.0, 1.0, 0.0)}
        for name, mask in free.items():
            self.gauss_params[name].register_hook(lambda grad, mask=mask: grad * grad.new_tensor(mask))

    # ---- checkpoints
    def get_extra_state(self) -> dict:
        return asdict(self.spec)

    def set_extra_state(self, state: dict) -> None:
        pass  # shapes are fixed at construction, see `from_state_dict`

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> LatentScene:
        """The scene of a state dict, with the shapes that it was saved with."""
        stored = dict(state["_extra_state"])
        lists = {name: tuple(stored.get(name, ())) for name in _TUPLES}
        scene = cls(SceneSpec(**{**stored, **lists}))
        scene.load_state_dict(dict(state))
        return scene

    def new_mechanism(self) -> Mechanism:
        """A mechanism of the shapes that this scene's dynamics have, not yet identified."""
        spec = self.spec
        mechanism = Mechanism.polynomial(
            self.new_metric(), spec.latent_dim, spec.potential_degree, spec.num_inputs
        ).double()
        return mechanism.requires_grad_(False)

    # ---- shapes
    @property
    def latent_dim(self) -> int:
        return self.spec.latent_dim

    @property
    def num_gaussians(self) -> int:
        return self.gauss_params["means"].shape[0]

    @property
    def num_moving(self) -> int:
        return self.spec.num_moving

    @property
    def paths(self) -> list[ClipPath]:
        """One path per clip."""
        result = []
        for clip, num_train in enumerate(self.path_num_train.tolist()):
            chosen = self.path_clip == clip
            result.append(ClipPath(self.path_times_s[chosen], self.path_q[chosen], self.path_qd[chosen], num_train))
        return result

    # ---- poses
    @property
    def skinning(self) -> Float[Tensor, "M P"]:
        """Weights of the moving primitives on the motion bases, rows sum to one."""
        return torch.softmax(self.gauss_params["skinning"][: self.num_moving], dim=-1)

    def placements(self) -> Float[Tensor, "M 2 P4"]:
        canonical = self.gauss_params["means"][: self.num_moving, 0::2]
        return placement(canonical, self.bases.origin, self.skinning)

    def pose_moving(
        self, motions: Float[Tensor, "*B P4"], angles: Float[Tensor, "*B P"]
    ) -> tuple[Float[Tensor, "*B M 3"], Float[Tensor, "*B M 4"]]:
        """Means and quaternions of the moving primitives under given motions of the bases."""
        params, moving = self.gauss_params, self.num_moving
        plane = torch.einsum("mcj,...j->...mc", self.placements(), motions) + self.bases.origin
        depth = params["means"][:moving, 1].expand(plane.shape[:-1])
        means = torch.stack([plane[..., 0], depth, plane[..., 1]], dim=-1)
        turn = torch.einsum("mp,...p->...m", self.skinning, angles)
        quats = quaternion_product(plane_rotation_quaternion(turn), params["quats"][:moving].expand(*turn.shape, 4))
        return means, quats

    def moving(self, q: Float[Tensor, "*B d"]) -> tuple[Tensor, Tensor, Tensor]:
        """Means [*B, M, 3], quaternions [*B, M, 4] and opacities [*B, M] of the moving primitives at q."""
        means, quats = self.pose_moving(self.bases(q), self.bases.angles(q))
        opacities = torch.sigmoid(self.gauss_params["opacities"][: self.num_moving, 0]).expand(means.shape[:-1])
        if self.conditional is not None:
            plane, gate = self.conditional(q)
            means = torch.stack([plane[..., 0], means[..., 1], plane[..., 1]], dim=-1)
            opacities = opacities * gate
        return means, quats, opacities

    def moving_at_frames(self, frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moving primitives at recorded frames [F]: from q where it exists, from the frames' free motions before."""
        if self.spec.is_embedded:
            return self.moving(self.frame_q[frames])
        return self.moving_freely(embedding(frames, self.frame_motions, sparse=True))

    def moving_freely(self, motions: Float[Tensor, "*B P3"]) -> tuple[Tensor, Tensor, Tensor]:
        """Moving primitives under free motions, (angles [P], translations [P, 2]) flattened."""
        angles, translations = self.split_motions(motions)
        means, quats = self.pose_moving(motion_vector(angles, translations), angles)
        opacities = torch.sigmoid(self.gauss_params["opacities"][: self.num_moving, 0])
        return means, quats, opacities.expand(means.shape[:-1])

    def split_motions(self, motions: Float[Tensor, "*B P3"]) -> tuple[Tensor, Tensor]:
        """Angles [*B, P] and translations [*B, P, 2] of flattened free motions."""
        num_bases = self.spec.num_bases
        return motions[..., :num_bases], motions[..., num_bases:].unflatten(-1, (num_bases, 2))

    def means(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B N 3"]:
        """Positions of all primitives at q, scene units."""
        static = self.gauss_params["means"][self.num_moving :]
        return torch.cat([self.moving(q)[0], static.expand(*q.shape[:-1], *static.shape)], dim=-2)

    def quats(self, q: Float[Tensor, "*B d"]) -> Float[Tensor, "*B N 4"]:
        """Rotations of all primitives at q, (w, x, y, z), not normalized."""
        static = self.gauss_params["quats"][self.num_moving :]
        return torch.cat([self.moving(q)[1], static.expand(*q.shape[:-1], *static.shape)], dim=-2)

    def jacobian(self, q: Float[Tensor, " d"]) -> Float[Tensor, "N 3 d"]:
        """d means / d q: A_i dm/dq for moving primitives, zero for static ones."""
        if self.conditional is not None:
            plane = self.conditional.jacobian
        else:
            plane = torch.einsum("mcj,jd->mcd", self.placements(), self.bases.jacobian(q).to(self.placements().dtype))
        result = plane.new_zeros(self.num_gaussians, 3, self.latent_dim)
        result[: self.num_moving, 0], result[: self.num_moving, 2] = plane[:, 0], plane[:, 1]
        return result

    @property
    def colors(self) -> Float[Tensor, "N 3"]:
        return torch.sigmoid(self.gauss_params["features_dc"])

    def gaussians(self, q: Float[Tensor, " d"]) -> Gaussians:
        """The whole scene posed at q."""
        means, quats, opacities = self.moving(q)
        logits = self.gauss_params["opacities"][:, 0]
        if self.conditional is not None:
            logits = torch.cat([torch.logit(opacities, eps=1e-6), logits[self.num_moving :]])
        return self._with_static(means, quats, logits)

    def gaussians_at_frame(self, frame: int) -> Gaussians:
        """The whole scene under the free motions of one recorded frame."""
        means, quats, _ = self.moving_freely(self.frame_motions[frame])
        return self._with_static(means, quats, self.gauss_params["opacities"][:, 0])

    def _with_static(self, means: Tensor, quats: Tensor, opacity_logits: Tensor) -> Gaussians:
        """Posed moving primitives (means [M, 3], quats [M, 4]) together with the static ones."""
        params, moving = self.gauss_params, self.num_moving
        return Gaussians(
            means=torch.cat([means, params["means"][moving:]]),
            quats_wxyz=torch.cat([quats, params["quats"][moving:]]),
            log_scales=params["scales"],
            opacity_logits=opacity_logits,
            colors=self.colors,
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters that pictures train, by the names of `training.stages.PARAMETER_GROUPS`."""
        groups = {name: [parameter] for name, parameter in self.gauss_params.items()}
        groups["frame_motions"] = [self.frame_motions]
        groups["bases"] = list(self.bases.parameters())
        if self.conditional is not None:
            groups["conditional"] = list(self.conditional.parameters())
        return groups

    # ---- geometry of the latent space
    def mass_weights(self) -> Float[Tensor, " M"]:
        """Share of each moving primitive in the mass: opacity times area, uniform density of the picture."""
        params, moving = self.gauss_params, self.num_moving
        area = torch.exp(params["scales"][:moving, 0] + params["scales"][:moving, 2])
        weights = torch.sigmoid(params["opacities"][:moving, 0]) * area
        return weights / weights.sum()

    def new_metric(self) -> GeometricMetric | LearnedMetric:
        """The inertia of this scene's dynamics, its free parameters not yet identified."""
        induced = self.geometric_metric()
        if self.spec.metric == "induced":
            return induced
        return LearnedMetric(self.latent_dim, structure=structure_of(induced, self.latent_dim)).double()

    def geometric_metric(self) -> GeometricMetric:
        """The metric that the moving primitives imply, in double precision and detached from the pictures."""
        canonical = self.gauss_params["means"].detach()[: self.num_moving, 0::2]
        bases = copy.deepcopy(self.bases).double().requires_grad_(False)
        weights, skinning = self.mass_weights().detach(), self.skinning.detach()
        return clustered_metric(bases, canonical.double(), weights.double(), skinning.double())
