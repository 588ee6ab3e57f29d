"""lagsplat as a nerfstudio model: a scene of Gaussians posed by a latent state, rendered at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from nerfstudio.cameras.cameras import Cameras
from nerfstudio.engine.callbacks import TrainingCallback, TrainingCallbackAttributes
from nerfstudio.models.splatfacto import SplatfactoModel, SplatfactoModelConfig
from pytorch_msssim import SSIM
from torch import Tensor
from torch.nn import Parameter, ParameterDict
from torchmetrics.image import PeakSignalNoiseRatio

from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.render.cameras import viewmats_from_nerfstudio
from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.simulation.scene_timelines import SceneTimelines
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.types import Gaussians
from lagsplat_ns.viewer.start_view import StartView


@dataclass
class LagSplatModelConfig(SplatfactoModelConfig):
    """A scene whose Gaussians follow a latent state that obeys a learned dissipative Lagrangian."""

    _target: type = field(default_factory=lambda: LagSplatModel)
    latent_dim: Literal["auto"] | int = "auto"
    """Number of latent coordinates. auto: 1 to 4, the fewest that explain the motion and forecast its tail best."""
    decoder: Literal["bases", "conditional"] = "bases"
    """How the latent state poses the Gaussians: rigid motion bases, or Gaussians conditioned on the state (fading)."""
    metric: Literal["induced", "learned"] = "induced"
    """The inertia M(q): induced by the moving Gaussians (uniform density), or a network found with the forces."""
    num_bases: Literal["auto"] | int = "auto"
    """Number of rigid motions that carry the moving Gaussians. auto: one where one explains the picture, else four."""
    num_static: int = 6000
    """Gaussians of the static background for a picture of 256 x 256 pixels; other sizes in proportion."""
    max_moving: int = 1500
    """Most Gaussians on the moving thing."""
    backend: Literal["auto", "gsplat", "cpu"] = "auto"
    """Rasterizer: gsplat on a CUDA device, the package's own on a CPU."""
    integrator: str = "adaptive"
    """How motion goes on outside the clip. adaptive: Dormand-Prince, compiled; rk4, velocity_verlet,
    semi_implicit_euler; or a solver of torchdiffeq by its name, such as dopri5."""
    seed: int = 0
    """Seed of everything drawn by chance."""
    sh_degree: int = 0
    num_downscales: int = 0
    background_color: Literal["random", "black", "white"] = "black"
    use_absgrad: bool = False


class LagSplatModel(SplatfactoModel):
    """A `LatentScene` under nerfstudio's model interface.

    Its Gaussians are splatfacto's (`gauss_params`), so splatfacto's viewer panels and exporter work on it. The scene is
    replaced by `adopt` when training changes its shapes, and by a checkpoint's when one is loaded.
    """

    config: LagSplatModelConfig

    def populate_modules(self) -> None:
        num_frames = len(self.kwargs.get("metadata", {}).get("times_s", [0.0]))
        Stepper(method=self.config.integrator)  # says what is wrong with a name before anything is trained
        self.scene = LatentScene(SceneSpec(1, 1, num_frames, 16, 16, 19.2))
        self.psnr = PeakSignalNoiseRatio(data_range=1.0)
        self.ssim = SSIM(data_range=1.0, size_average=True, channel=3)
        self.step = 0
        self.crop_box = None
        self.background_color = torch.zeros(3)
        self._timelines: SceneTimelines | None = None
        self.start_view = StartView()

    # ---- the scene
    @property
    def gauss_params(self) -> ParameterDict:  # type: ignore[override]
        return self.scene.gauss_params

    def adopt(self, scene: LatentScene) -> None:
        """Use another scene from now on."""
        scene.spec = replace(scene.spec, integrator=self.config.integrator)
        self.scene = scene.to(self.device)
        self._timelines = None

    def train(self, mode: bool = True) -> LagSplatModel:
        self._timelines = None  # paths may change while training goes on
        return super().train(mode)

    def load_state_dict(self, dict: Mapping[str, Any], **kwargs: Any) -> Any:  # type: ignore[override]
        prefix = "scene."
        stored = {key[len(prefix) :]: value for key, value in dict.items() if key.startswith(prefix)}
        self.adopt(LatentScene.from_state_dict(stored))
        return super(SplatfactoModel, self).load_state_dict(dict, **kwargs)

    def get_param_groups(self) -> dict[str, list[Parameter]]:
        return self.scene.parameter_groups()

    def get_training_callbacks(
        self, training_callback_attributes: TrainingCallbackAttributes
    ) -> list[TrainingCallback]:
        return []  # the pipeline runs the stages; no densification

    # ---- pictures
    def gaussians_at(self, time: float) -> Gaussians:
        """The scene at a camera's time: 0 to 1 is the first clip, times outside are rolled out."""
        spec = self.scene.spec
        if not spec.is_embedded:
            return self.scene.gaussians_at_frame(round(min(max(time, 0.0), 1.0) * (spec.num_frames - 1)))
        if self._timelines is None:
            self._timelines = SceneTimelines(self.scene)
        q = self._timelines.state(time * spec.seconds_per_unit).q
        return self.scene.gaussians(q.to(self.device, torch.float32))

    def get_outputs(self, camera: Cameras) -> dict[str, Tensor]:  # type: ignore[override]
        """rgb, depth, accumulation and background for one camera; its time may lie outside [0, 1]."""
        time = 0.0 if camera.times is None else float(camera.times.reshape(-1)[0])
        with torch.no_grad():
            gaussians = self.gaussians_at(time)
            width, height = int(camera.width.reshape(-1)[0]), int(camera.height.reshape(-1)[0])
            opacities = torch.sigmoid(gaussians.opacity_logits)
            if self.crop_box is not None and not self.training:
                opacities = opacities * self.crop_box.within(gaussians.means).reshape(-1)
            pictures, alphas, _ = rasterization(
                means=gaussians.means,
                quats=gaussians.quats_wxyz,
                scales=torch.exp(gaussians.log_scales),
                opacities=opacities,
                colors=gaussians.colors,
                viewmats=viewmats_from_nerfstudio(camera.camera_to_worlds.reshape(-1, 3, 4)[:1].to(self.device)),
                Ks=camera.get_intrinsics_matrices().reshape(-1, 3, 3)[:1].to(self.device),
                width=width,
                height=height,
                render_mode="RGB+ED",
                backend=self.config.backend,
            )
        alpha, background = alphas[0], self.background_color.to(self.device)
        depth = torch.where(alpha > 0, pictures[0, ..., 3:4], pictures[0, ..., 3:4].max())
        return {
            "rgb": (pictures[0, ..., :3] + (1.0 - alpha) * background).clamp(0.0, 1.0),
            "depth": depth,
            "accumulation": alpha,
            "background": background.expand(height, width, 3),
        }

    # ---- figures
    def get_metrics_dict(self, outputs: dict[str, Tensor], batch: dict[str, Any]) -> dict[str, Tensor]:  # type: ignore[override]
        truth = self.composite_with_background(self.get_gt_img(batch["image"]), outputs["background"])
        return {"psnr": self.psnr(outputs["rgb"], truth), "gaussian_count": torch.tensor(float(self.num_points))}

    def get_loss_dict(  # type: ignore[override]
        self, outputs: dict[str, Tensor], batch: dict[str, Any], metrics_dict: dict[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        truth = self.composite_with_background(self.get_gt_img(batch["image"]), outputs["background"])
        return {"photometric": (outputs["rgb"] - truth).abs().mean()}

    def get_image_metrics_and_images(
        self, outputs: dict[str, Tensor], batch: dict[str, Any]
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        truth = self.composite_with_background(self.get_gt_img(batch["image"]), outputs["background"])
        stacked = [picture.movedim(-1, 0)[None] for picture in (outputs["rgb"], truth)]
        metrics = {"psnr": float(self.psnr(*stacked))}
        if min(truth.shape[:2]) >= 11:  # the window of SSIM
            metrics["ssim"] = float(self.ssim(*stacked))
        return metrics, {"img": torch.cat([truth, outputs["rgb"]], dim=1)}
