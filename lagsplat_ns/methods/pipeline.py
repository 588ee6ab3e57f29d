"""The training of lagsplat inside nerfstudio's trainer: stages instead of a ray loop."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from nerfstudio.data.datamanagers.base_datamanager import DataManagerConfig
from nerfstudio.engine.callbacks import TrainingCallback, TrainingCallbackAttributes, TrainingCallbackLocation
from nerfstudio.engine.optimizers import Optimizers
from nerfstudio.engine.trainer import Trainer
from nerfstudio.models.base_model import ModelConfig
from nerfstudio.pipelines.base_pipeline import VanillaPipeline, VanillaPipelineConfig
from nerfstudio.utils.rich_utils import CONSOLE
from torch import Tensor

from lagsplat_ns.data.datamanager import VideoDataManager, VideoDataManagerConfig
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.methods.lagsplat import LagSplatModel, LagSplatModelConfig
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.simulation.calibration import save_calibration
from lagsplat_ns.simulation.input_scale import calibration_from, input_scales
from lagsplat_ns.training.evaluate import confidence
from lagsplat_ns.training.fit import FitOptions, SceneFit
from lagsplat_ns.training.report import print_report, write_report
from lagsplat_ns.training.stages import Schedule


@dataclass
class LagSplatPipelineConfig(VanillaPipelineConfig):
    """Trains a latent scene from the clips of a `VideoDataManager`."""

    _target: type = field(default_factory=lambda: LagSplatPipeline)
    datamanager: DataManagerConfig = field(default_factory=VideoDataManagerConfig)
    model: ModelConfig = field(default_factory=LagSplatModelConfig)


class LagSplatPipeline(VanillaPipeline):
    """Runs the stages of a `SceneFit`; nerfstudio's trainer steps the optimizers, saves, logs and shows."""

    config: LagSplatPipelineConfig
    datamanager: VideoDataManager

    def __init__(
        self,
        config: LagSplatPipelineConfig,
        device: str | torch.device,
        test_mode: Literal["test", "val", "inference"] = "val",
        world_size: int = 1,
        local_rank: int = 0,
        grad_scaler: Any = None,
    ) -> None:
        begun = time.perf_counter()
        super().__init__(config, str(device), test_mode, world_size, local_rank, grad_scaler)
        self._prepare_seconds = time.perf_counter() - begun
        if torch.device(device).type == "cpu":
            # The renderer has threads of its own; those of torch would fight with them for the cores.
            torch.set_num_threads(1)
        self._fit: SceneFit | None = None
        self._schedule: Schedule | None = None

    @property
    def lagsplat(self) -> LagSplatModel:
        model = self.model
        assert isinstance(model, LagSplatModel)
        return model

    # ---- training
    def get_training_callbacks(
        self, training_callback_attributes: TrainingCallbackAttributes
    ) -> list[TrainingCallback]:
        optimizers, trainer = training_callback_attributes.optimizers, training_callback_attributes.trainer
        assert optimizers is not None and trainer is not None
        self._begin(optimizers, trainer)
        location = TrainingCallbackLocation
        return [
            *super().get_training_callbacks(training_callback_attributes),
            TrainingCallback([location.BEFORE_TRAIN_ITERATION], self._before_iteration, args=[optimizers]),
            TrainingCallback([location.AFTER_TRAIN_ITERATION], self._after_iteration, args=[trainer]),
            TrainingCallback([location.AFTER_TRAIN], self._after_training, args=[trainer]),
        ]

    def _begin(self, optimizers: Optimizers, trainer: Trainer) -> None:
        """Build the fit from the clips, or continue with the scene of a loaded checkpoint."""
        self._schedule = Schedule(trainer.config.max_num_iterations)
        clips = self.datamanager.clips
        camera = self._filming_camera()
        config = self.lagsplat.config
        options = FitOptions(
            latent_dim=None if config.latent_dim == "auto" else int(config.latent_dim),
            num_bases=None if config.num_bases == "auto" else int(config.num_bases),
            num_static=config.num_static,
            max_moving=config.max_moving,
            decoder=config.decoder,
            metric=config.metric,
            seed=config.seed,
        )
        self._fit = SceneFit(clips, camera, options, torch.device(self.device))
        self._fit.log.seconds["prepare"] = self._prepare_seconds
        if trainer._start_step > 0:
            self._fit.resume(self.lagsplat.scene)
            self._fit.log.begin(self._schedule.at(trainer._start_step)[0].name)
            bind_optimizers(optimizers, self.lagsplat.scene, keep_state=True)

    def _filming_camera(self) -> FilmingCamera:
        cameras = self.datamanager.train_dataset.cameras
        return FilmingCamera(int(cameras.width[0]), int(cameras.height[0]), float(cameras.fx[0]))

    def _before_iteration(self, optimizers: Optimizers, step: int) -> None:
        assert self._fit is not None and self._schedule is not None
        if step in self._schedule.starts():
            stage = self._schedule.starts()[step]
            CONSOLE.log(f"Stage [bold]{stage.name}[/bold] begins at iteration {step}")
            scene = self.lagsplat.scene
            if step == 0:
                scene = LatentScene(self._fit.initial_spec()).to(self.device)
            self.lagsplat.adopt(self._fit.enter(stage.name, scene))
            bind_optimizers(optimizers, self.lagsplat.scene, keep_state=False)
        stage, progress = self._schedule.at(step)
        for name, optimizer in optimizers.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = optimizers.config[name]["optimizer"].lr * stage.rate(name, progress)

    def _after_iteration(self, trainer: Trainer, step: int) -> None:
        """The last iteration settles the dynamics, so that the checkpoint that follows holds them."""
        last = trainer._start_step + trainer.config.max_num_iterations - 1
        if step == last and self._fit is not None:
            self.lagsplat.adopt(self._fit.finish(self.lagsplat.scene))

    def _after_training(self, trainer: Trainer, step: int) -> None:
        if self._fit is not None:
            report = self._fit.report(self.lagsplat.scene)
            calibration, notes = calibration_from(input_scales(self.lagsplat.scene))
            report.notes += notes
            if calibration is not None:
                save_calibration(calibration, trainer.base_dir)
                report.force_unit = "N"
            write_report(report, trainer.base_dir / "report.json")
            print_report(report, CONSOLE)

    def get_average_eval_image_metrics(
        self, step: int | None = None, output_path: Path | None = None, get_std: bool = False
    ) -> dict[str, Any]:
        """nerfstudio's figures of the held-out pictures; for a finished training also how far it can be trusted."""
        metrics = super().get_average_eval_image_metrics(step, output_path, get_std)
        scene = self.lagsplat.scene
        if self._fit is None and scene.mechanism is not None:
            fit = SceneFit(self.datamanager.clips, self._filming_camera(), FitOptions(), torch.device(self.device))
            fit.resume(scene)
            metrics |= asdict(confidence(fit, scene))
        return metrics

    def get_train_loss_dict(self, step: int) -> tuple[dict, dict[str, Tensor], dict[str, Tensor]]:
        assert self._fit is not None and self._schedule is not None
        stage, progress = self._schedule.at(step)
        terms = self._fit.loss(self.lagsplat.scene, stage, progress)
        metrics = {"gaussian_count": torch.tensor(float(self.lagsplat.num_points))}
        return {}, terms, metrics


def bind_optimizers(optimizers: Optimizers, scene: LatentScene, keep_state: bool) -> None:
    """Point every optimizer at the scene's present parameters.

    keep_state: whether running averages go along (a resumed training), or start anew (a new stage).
    """
    for name, parameters in scene.parameter_groups().items():
        if name not in optimizers.optimizers:
            optimizers.optimizers[name] = optimizers.config[name]["optimizer"].setup(params=parameters)
            optimizers.parameters[name] = parameters
            continue
        optimizer = optimizers.optimizers[name]
        old = optimizer.param_groups[0]["params"]
        states = [optimizer.state.get(parameter, {}) for parameter in old]
        optimizer.state.clear()
        optimizer.param_groups[0]["params"] = list(parameters)
        optimizers.parameters[name] = list(parameters)
        if keep_state and len(states) == len(parameters):
            for parameter, state in zip(parameters, states, strict=True):
                if state:
                    optimizer.state[parameter] = state
