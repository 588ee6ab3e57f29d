"""A trained scene from the files of its training alone; neither the clip nor nerfstudio's data pipeline is needed."""

from __future__ import annotations

from pathlib import Path

import torch

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.simulation.camera import PinholeCamera

_PREFIX = "_model.scene."


def load_scene(config: Path, device: str | None = None) -> tuple[LatentScene, PinholeCamera]:
    """The scene of the newest checkpoint beside a training's `config.yml`, and the camera that filmed it.

    device: where the scene's tensors go; None: CUDA where it is available, else the CPU, as in training.

    Raises: FileNotFoundError if the file or its checkpoint is missing, ValueError for another method's training.
    """
    if not config.is_file():
        raise FileNotFoundError(
            f"The configuration of a training must be a file, but there is none at {config}.\n"
            "  Pass the config.yml that ns-train names when it ends: outputs/NAME/lagsplat/TIME/config.yml."
        )
    checkpoints = sorted((config.parent / "nerfstudio_models").glob("step-*.ckpt"))
    if not checkpoints:
        raise FileNotFoundError(
            f"A training must have a checkpoint beside its configuration, but {config.parent / 'nerfstudio_models'} "
            "has none.\n  Train to the end: ns-train lagsplat --data PATH."
        )
    saved = torch.load(checkpoints[-1], map_location="cpu", weights_only=True)["pipeline"]
    state = {key[len(_PREFIX) :]: value for key, value in saved.items() if key.startswith(_PREFIX)}
    if "_extra_state" not in state:
        raise ValueError(
            f"{config} must belong to a training of lagsplat, but its checkpoint holds another model.\n"
            "  Pass the config.yml of an `ns-train lagsplat` run."
        )
    scene = LatentScene.from_state_dict(state)
    scene.requires_grad_(False)
    if scene.mechanism is not None:
        scene.mechanism.input_names = scene.spec.input_names
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return scene.to(device).eval(), filming_camera(scene)


def filming_camera(scene: LatentScene) -> PinholeCamera:
    """The camera that filmed a scene."""
    filmed = FilmingCamera(scene.spec.width, scene.spec.height, scene.spec.focal)
    matrix = torch.cat([filmed.world_from_camera(), torch.tensor([[0.0, 0.0, 0.0, 1.0]])]).double()
    width, height = filmed.width, filmed.height
    return PinholeCamera(matrix, filmed.focal, filmed.focal, width / 2, height / 2, width, height)
