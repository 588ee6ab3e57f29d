"""A trained scene and its filming camera from nerfstudio's training folder, without the clip and without nerfstudio."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path

import torch

from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.simulation.camera import PinholeCamera

_PREFIX = "_model.scene."


def load_scene(config: Path) -> tuple[LatentScene, PinholeCamera]:
    """The scene of the latest checkpoint beside a `config.yml`, on CUDA where there is a device, else on the CPU.

    Raises: FileNotFoundError if the file or its checkpoint is missing, ValueError if the checkpoint is of another
    method or cannot be read.
    """
    checkpoint = latest_checkpoint(config)
    try:
        stored = torch.load(checkpoint, map_location="cpu", weights_only=True)["pipeline"]
    except (RuntimeError, KeyError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"A checkpoint must be readable by torch.load, but {checkpoint} is not ({type(error).__name__}).\n"
            "  Train again, or copy the folder again if it came from another machine."
        ) from error
    state = {
        key.removeprefix("module.").removeprefix(_PREFIX): value for key, value in stored.items() if _PREFIX in key
    }
    if not state:
        raise ValueError(
            f"A training must be one of lagsplat, but {checkpoint} holds no latent scene.\n"
            "  Pass the config.yml that `ns-train lagsplat` wrote."
        )
    scene = LatentScene.from_state_dict(state).eval().requires_grad_(False)
    if torch.cuda.is_available():
        scene = scene.to("cuda")
    return scene, pinhole_camera(scene.spec)


def latest_checkpoint(config: Path) -> Path:
    """The checkpoint of the largest step in the folder that nerfstudio keeps beside a `config.yml`.

    Raises: FileNotFoundError if there is none.
    """
    if not config.is_file():
        raise FileNotFoundError(
            f"A training is loaded from its config.yml, but {config} is not a file.\n"
            "  ns-train prints its path at the start; it lies in outputs/NAME/lagsplat/TIME/config.yml."
        )
    numbered = {
        int(match[1]): path
        for path in (config.parent / "nerfstudio_models").glob("step-*.ckpt")
        if (match := re.fullmatch(r"step-(\d+)\.ckpt", path.name))
    }
    if not numbered:
        raise FileNotFoundError(
            f"A training must have a checkpoint to be loaded, but {config.parent / 'nerfstudio_models'} has none.\n"
            "  Let the training run to its end."
        )
    return numbered[max(numbered)]


def pinhole_camera(spec: SceneSpec) -> PinholeCamera:
    """The camera that filmed a scene."""
    film = FilmingCamera(spec.width, spec.height, spec.focal)
    angle = 2.0 * math.atan(0.5 * spec.width / spec.focal)
    return PinholeCamera.from_angle(film.world_from_camera(), angle, spec.width, spec.height)
