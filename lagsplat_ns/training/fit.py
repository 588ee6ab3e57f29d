"""A scene learned from clips, stage by stage: what happens when a stage begins, and the loss inside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.gaussians.scene import DecoderName, LatentScene, MetricName, SceneSpec
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training import appearance, losses
from lagsplat_ns.training.compositing import render_over, render_static
from lagsplat_ns.training.conditional_start import start_conditional
from lagsplat_ns.training.dynamics import LearnedDynamics, learn_dynamics
from lagsplat_ns.training.embedding import Embedding, Motions, candidates, embed
from lagsplat_ns.training.evaluate import evaluate
from lagsplat_ns.training.measure import find_again, measure
from lagsplat_ns.training.recorded_inputs import recorded_inputs
from lagsplat_ns.training.report import FitReport
from lagsplat_ns.training.stages import Stage, StageName
from lagsplat_ns.training.starts import FlowStarts, MotionStart, StructureStart, find_structure

_HOPELESS = 0.5
"""forecast error of the tail, as a share of its spread, that is no better than guessing"""


@dataclass
class FitOptions:
    """What a user may choose about the scene and its latent space."""

    latent_dim: int | None = None
    """number of latent coordinates; None: found from the tracks, 1 to 4"""
    num_bases: int | None = None
    """number of rigid motion bases; None: as many rigid parts as explain the moving pixels, 1 to 4"""
    num_static: int = 6000
    """Gaussians of the static background at 256 x 256 pixels; other sizes in proportion"""
    max_moving: int = 1500
    """most Gaussians on the moving thing"""
    decoder: DecoderName = "bases"
    """how q poses the Gaussians: rigid motion bases, or Gaussians conditioned on q"""
    metric: MetricName = "induced"
    """the inertia M(q): what the moving Gaussians imply, or a network found with the forces"""
    seed: int = 0


@dataclass
class FitLog:
    """What was decided on the way, in plain words and numbers, for the summary."""

    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """wall time of every stage, its preparation included"""
    _running: tuple[str, float] | None = None

    def begin(self, stage: str | None) -> None:
        """Stop the running stage's clock and start another one's."""
        now = time.perf_counter()
        if self._running is not None:
            name, begun = self._running
            self.seconds[name] = self.seconds.get(name, 0.0) + now - begun
        self._running = None if stage is None else (stage, now)


class SceneFit:
    """The training of one `LatentScene`, apart from the optimizer that turns gradients into steps."""

    def __init__(
        self, clips: list[PreparedClip], camera: FilmingCamera, options: FitOptions, device: torch.device
    ) -> None:
        self.clips, self.camera, self.options, self.device = clips, camera, options, device
        self.log = FitLog()
        self.rng = np.random.default_rng(options.seed)
        self.lengths = [len(clip.times_s) for clip in clips]
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.train_frames = np.concatenate(
            [np.arange(clip.num_train) + start for clip, start in zip(clips, self.offsets[:-1], strict=True)]
        )
        self.start: MotionStart | None = None
        self.background = torch.from_numpy(np.array(clips[0].background)).to(device).float() / 255
        self.learned: LearnedDynamics | None = None

    # ---- pictures
    def frames(self, index: np.ndarray) -> np.ndarray:
        """uint8 pictures [F, H, W, 3] of global frame numbers."""
        owners = self._owner(index)
        return np.stack([self.clips[c].frames[i - self.offsets[c]] for c, i in zip(owners, index, strict=True)])

    def masks(self, index: np.ndarray) -> np.ndarray:
        """Moving pixels [F, H, W] of global frame numbers."""
        owners = self._owner(index)
        return np.stack([self.clips[c].masks[i - self.offsets[c]] for c, i in zip(owners, index, strict=True)])

    def _owner(self, index: np.ndarray) -> np.ndarray:
        """The clip that each global frame number belongs to."""
        return np.searchsorted(self.offsets, index, side="right") - 1

    def tensor_frames(self, index: np.ndarray) -> Float[Tensor, "F H W 3"]:
        return appearance.tensor_frames(self.frames(index), self.device)

    # ---- stage beginnings
    def initial_spec(self) -> SceneSpec:
        """Shapes before anything was learned: sizes from the picture and from the moving pixels."""
        options, clip = self.options, self.clips[0]
        start = self.motion_start()
        num_moving = int(np.clip(start.area_px() / 1.2, 60, options.max_moving))
        height, width = clip.background.shape[:2]
        num_static = max(200, int(options.num_static * height * width / 256**2))
        return SceneSpec(
            num_moving, num_static, int(self.offsets[-1]), width, height, self.camera.focal,
            seconds_per_unit=float(clip.times_s[-1] - clip.times_s[0]), num_clips=len(self.clips),
            metric=options.metric, **start.spec_fields(), **recorded_inputs(self.clips),
        )  # fmt: skip

    def motion_start(self) -> MotionStart:
        """What moves and how, as far as it can be told before any Gaussian is trained."""
        if self.start is None:
            self.log.begin("flow")
            wants_structure = self.options.num_bases is None
            found = find_structure(self.clips[0], self.options.latent_dim) if wants_structure else None
            self.start = FlowStarts(self.clips, self.options.num_bases) if found is None else StructureStart(*found)
            if isinstance(self.start, StructureStart):
                self.log.notes.append(self.start.description())
        return self.start

    def enter(self, stage: StageName, scene: LatentScene) -> LatentScene:
        """Prepare a stage; returns the scene to train on, a new one where shapes change."""
        self.log.begin(stage)
        handler: Callable[[LatentScene], LatentScene] = getattr(self, f"_enter_{stage}")
        return handler(scene)

    def _enter_background(self, scene: LatentScene) -> LatentScene:
        clip = self.clips[0]
        with torch.no_grad():
            scene.path_times_s.copy_(torch.from_numpy(np.concatenate([c.times_s for c in self.clips])))
            scene.path_clip.copy_(torch.from_numpy(np.repeat(np.arange(len(self.clips)), self.lengths)))
            scene.path_num_train.copy_(torch.tensor([c.num_train for c in self.clips]))
        appearance.fill_static(scene, self.camera, np.array(clip.background), self.options.seed)
        self.motion_start().place(scene, self.clips, self.camera, self.options.seed)
        return scene

    def _enter_kinematics(self, scene: LatentScene) -> LatentScene:
        self._freeze_background(scene)
        return scene

    def _freeze_background(self, scene: LatentScene) -> None:
        with torch.no_grad():
            self.background = render_static(scene, self.camera)

    def _enter_embed(self, scene: LatentScene) -> LatentScene:
        if scene.spec.is_embedded:
            return self._enter_embed_structured(scene)
        motions = self._train_motions(scene)
        pixel = self.camera.pixel_size
        if self.options.latent_dim is not None:
            chosen = embed(motions, self.options.latent_dim, pixel)
        else:
            chosen = self._choose_embedding(scene, candidates(motions, pixel))
        self.log.notes.append(
            f"{chosen.latent_dim} latent coordinate(s) explain the tracks to {chosen.residual / pixel:.2f} px "
            f"of {chosen.spread / pixel:.1f} px ({'angle about a pivot' if chosen.has_pivots else 'polynomial'})"
        )
        scene = self._embedded(scene, chosen)
        self._measure(scene)
        return scene

    def _enter_embed_structured(self, scene: LatentScene) -> LatentScene:
        """Find the thing of the first clip in the others, and read q off all pictures."""
        seen = scene.frame_q[: self.clips[0].num_train].double().cpu().numpy()
        for clip, offset in zip(self.clips[1:], self.offsets[1:-1], strict=True):
            q = find_again(scene, self.camera, self.background, clip.frames[: clip.num_train], clip.times_s, seen)
            scene.frame_q[offset : offset + len(q)] = torch.from_numpy(q).float().to(self.device)
        self._measure(scene)
        if self.options.decoder == "conditional":
            scene = self._recreated(scene, replace(scene.spec, decoder="conditional"))
            start_conditional(scene, scene.frame_q[torch.from_numpy(self.train_frames)], self.options.seed)
        return scene

    def _measure(self, scene: LatentScene) -> None:
        """Read q off the training pictures, starting from where it is."""
        rows = self.train_frames
        start = scene.frame_q[torch.from_numpy(rows)].double().cpu().numpy()
        measured = measure(scene, self.camera, self.background, self.frames(rows), start, iterations=2)
        scene.frame_q[torch.from_numpy(rows)] = torch.from_numpy(measured.q).float().to(self.device)

    def _train_motions(self, scene: LatentScene) -> Motions:
        motions = Motions.of(scene)
        rows = self.train_frames
        return replace(motions, angles=motions.angles[rows], translations=motions.translations[rows])

    def _choose_embedding(self, scene: LatentScene, found: list[Embedding]) -> Embedding:
        """The number of coordinates whose forecast of the last fifth of the training frames is best."""
        if len(found) == 1:
            return found[0]
        scores = []
        for candidate in found:
            trial = self._embedded(scene, candidate)
            path = trial.frame_q.detach().double().cpu().numpy()
            scores.append(self._tail_error(trial, path))
        if min(scores) > _HOPELESS:  # no forecast is worth anything: let the pictures decide
            best = int(np.argmin([candidate.residual for candidate in found]))
        else:
            best = int(np.argmin(scores))
        listed = ", ".join(f"d = {c.latent_dim}: {s:.1%}" for c, s in zip(found, scores, strict=True))
        self.log.notes.append(f"tail forecast error by latent dimension: {listed}")
        return found[best]

    def _tail_error(self, scene: LatentScene, path: np.ndarray) -> float:
        """Forecast error of the tracks over the last fifth of the training part, relative to their spread."""
        shortened = [max(8, int(0.8 * clip.num_train)) for clip in self.clips]
        learned = learn_dynamics(scene, self.clips, path, shortened, is_quick=True)
        errors, spreads = [], []
        with torch.no_grad():
            root = torch.from_numpy(_half_gram(scene)).float()
            for clip, offset, cut in zip(self.clips, self.offsets[:-1], shortened, strict=True):
                rows = slice(offset + cut, offset + clip.num_train)
                seen = scene.bases(torch.from_numpy(path[rows]).float()) @ root
                forecast = scene.bases(torch.from_numpy(learned.q[rows]).float()) @ root
                errors.append((forecast - seen).square().sum(-1).mean())
                spreads.append((seen - seen.mean(0)).square().sum(-1).mean())
        score = float(torch.stack(errors).mean().sqrt() / torch.stack(spreads).mean().sqrt().clamp(min=1e-9))
        return score if np.isfinite(score) else float("inf")

    def _embedded(self, scene: LatentScene, chosen: Embedding) -> LatentScene:
        """The same primitives in a scene whose motions are functions of q."""
        spec = replace(
            scene.spec, latent_dim=chosen.latent_dim, degree=chosen.degree, has_pivots=chosen.has_pivots,
            decoder=self.options.decoder, is_embedded=True,
        )  # fmt: skip
        result = self._recreated(scene, spec)
        result.bases.load_state_dict({k: v.float() for k, v in chosen.bases.state_dict().items()})
        with torch.no_grad():
            result.frame_q[torch.from_numpy(self.train_frames)] = torch.from_numpy(chosen.q).float().to(self.device)
        if result.conditional is not None:
            start_conditional(result, result.frame_q[torch.from_numpy(self.train_frames)], self.options.seed)
        return result

    def _recreated(self, scene: LatentScene, spec: SceneSpec) -> LatentScene:
        """The same primitives in a scene of other shapes; everything that has the same shape there is taken over."""
        result, old = LatentScene(spec).to(self.device), scene.state_dict()
        same = {
            name: value
            for name, value in result.state_dict().items()
            if isinstance(value, torch.Tensor) and name in old and old[name].shape == value.shape
        }
        result.load_state_dict({name: old[name] for name in same}, strict=False)
        return result

    def _enter_joint(self, scene: LatentScene) -> LatentScene:
        return self._learn(scene)

    def _learn(self, scene: LatentScene) -> LatentScene:
        """Read q off the training pictures, identify the dynamics, and let q follow them."""
        self._measure(scene)
        path = scene.frame_q.double().cpu().numpy()
        learned = learn_dynamics(scene, self.clips, path, [clip.num_train for clip in self.clips])
        q, qd = learned.recorded(path)
        scene.mechanism = learned.mechanism.to(self.device).requires_grad_(False)
        scene.spec = replace(scene.spec, has_mechanism=True, potential_degree=learned.mechanism.potential.degree)
        scene.frame_q.copy_(torch.from_numpy(q))
        scene.path_q.copy_(torch.from_numpy(q))
        scene.path_qd.copy_(torch.from_numpy(qd))
        self.learned = learned
        return scene

    def resume(self, scene: LatentScene) -> None:
        """Go on with a scene that was saved in the middle of a training."""
        self._freeze_background(scene)

    def finish(self, scene: LatentScene) -> LatentScene:
        """Settle the dynamics on the final appearance; a training too short to have a latent state gets one first."""
        self.log.begin("settle")
        self._freeze_background(scene)
        if not scene.spec.is_embedded:
            scene = self._enter_embed(scene)
        return self._learn(scene)

    def report(self, scene: LatentScene) -> FitReport:
        """Figures of the finished scene."""
        self.log.begin("report")
        return evaluate(self, scene)

    def _num_known(self, scene: LatentScene, stage: Stage) -> int:
        """Frames up to this one have a motion already: of several clips only the first, until the thing is found in the
        others."""
        waits = scene.spec.is_embedded and stage.name == "kinematics"
        return int(self.offsets[1] if waits else self.offsets[-1])

    # ---- loss
    def loss(self, scene: LatentScene, stage: Stage, progress: float) -> dict[str, Tensor]:
        """The terms of one step's loss."""
        if stage.name == "background":
            target = torch.from_numpy(np.array(self.clips[0].background)).to(self.device).float() / 255
            return {"photometric": losses.photometric(render_static(scene, self.camera)[None], target[None])}
        known = self.train_frames[self.train_frames < self._num_known(scene, stage)]
        index = self.rng.choice(known, min(stage.frames, len(known)), replace=False)
        poses = scene.moving_at_frames(torch.from_numpy(index).to(self.device))
        pictures = render_over(scene, self.camera, self.background, poses)
        terms = {"photometric": losses.photometric(pictures, self.tensor_frames(index), stage.blur(progress))}
        if not scene.spec.is_embedded and stage.name == "kinematics" and stage.blur(progress) > 1:
            owners = self._owner(index)
            first, count = self.offsets[owners], np.array([clip.num_train for clip in self.clips])[owners]
            rows = [np.clip(index + shift, first, first + count - 1) for shift in (-1, 0, 1)]
            neighbors = [embedding(torch.from_numpy(r).to(self.device), scene.frame_motions, sparse=True) for r in rows]
            terms["bending"] = 0.05 * losses.bending(*neighbors)
        return terms


def _half_gram(scene: LatentScene) -> np.ndarray:
    return Motions.of(scene).half_gram()
