"""A short training on CUDA by nerfstudio's own command, and the simulator on its result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lagsplat_ns.simulator import Simulator
from tests.e2e.conftest import run
from tests.e2e.tiny_clip import START, write_tiny_clip

pytestmark = pytest.mark.device


def test_training_on_cuda_gives_a_thing_that_can_be_pushed(tmp_path: Path) -> None:
    """The device is found without a flag; the scene lies on it, pictures come from it, the physics is finite."""
    clip = write_tiny_clip(tmp_path / "swing.mp4")
    run(
        "ns-train", "lagsplat", "--data", clip, "--output-dir", tmp_path / "outputs", "--vis", "tensorboard",
        "--max-num-iterations", "200", "--pipeline.model.latent-dim", "1", folder=tmp_path,
    )  # fmt: skip
    (config,) = tmp_path.glob("outputs/*/lagsplat/*/config.yml")
    assert "device_type: cuda" in config.read_text()
    sim = Simulator.load(config)
    assert sim.scene.is_moving.device.type == "cuda"
    sim.seek(0.0)
    grip = sim.grab(START)
    sim.step(0.2, forces=[(grip, (3.0, 0.0))])
    picture = sim.render()
    assert picture.device.type == "cuda"
    assert torch.isfinite(picture).all()
    assert torch.isfinite(sim.state.q).all()
