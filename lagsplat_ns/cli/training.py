"""Training by nerfstudio's own trainer, in this process."""

from __future__ import annotations

import copy
from pathlib import Path


def train(data: Path, output_dir: Path, *, max_num_iterations: int | None = None) -> Path:
    """Trains `lagsplat` on a clip with its default settings, as `ns-train lagsplat --data DATA` does.

    Returns the path of the training's config.yml.
    """
    from nerfstudio.scripts import train as nerfstudio_train

    from lagsplat_ns.configs import lagsplat

    config = copy.deepcopy(lagsplat.config)
    config.data, config.output_dir, config.vis = data, output_dir, "tensorboard"
    config.experiment_name = data.stem
    if max_num_iterations is not None:
        config.max_num_iterations = max_num_iterations
    nerfstudio_train.main(config)
    return config.get_base_dir() / "config.yml"
