"""Train, save, reload: the same pictures; resume: goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lagsplat_ns.simulator import Simulator
from tests.e2e.conftest import run
from tests.e2e.tiny_clip import START


def load_pipeline(config: Path):
    from nerfstudio.utils.eval_utils import eval_setup

    return eval_setup(config, test_mode="inference")[1]


@pytest.fixture(scope="module")
def pipeline(tiny_training: Path):
    return load_pipeline(tiny_training)


def test_reloading_gives_bitwise_the_same_picture(tiny_training: Path, pipeline) -> None:
    camera = pipeline.datamanager.train_dataset.cameras[5:6]
    first = pipeline.model.get_outputs_for_camera(camera)["rgb"]
    second = load_pipeline(tiny_training).model.get_outputs_for_camera(camera)["rgb"]
    assert first.shape == (64, 64, 3)
    assert torch.equal(first, second)


def test_the_simulator_shows_what_nerfstudio_shows(tiny_training: Path, pipeline) -> None:
    sim = Simulator.load(tiny_training)
    cameras = pipeline.datamanager.train_dataset.cameras
    for frame in (0, 11, 20):
        shown = pipeline.model.get_outputs_for_camera(cameras[frame : frame + 1])["rgb"].cpu()
        sim.seek(float(cameras.times[frame]) * sim.clip_end_s)
        assert float((sim.render().cpu() - shown).abs().max()) < 2e-3


def test_the_simulator_needs_no_clip(tiny_training: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_training.parent, tmp_path / "moved elsewhere")
    sim, original = Simulator.load(tmp_path / "moved elsewhere" / "config.yml"), Simulator.load(tiny_training)
    for simulator in (sim, original):
        simulator.seek(3.3)
    assert torch.equal(sim.render(), original.render())


def test_the_disk_can_be_pushed_and_the_wall_cannot(tiny_training: Path) -> None:
    sim = Simulator.load(tiny_training)
    sim.seek(0.0)
    assert sim.grab((2.5, 60.5)).is_empty
    grip = sim.grab(START)
    assert not grip.is_empty
    free = Simulator.load(tiny_training)
    free.step(0.2)
    sim.step(0.2, forces=[(grip, (3.0, 0.0))])
    assert sim.grip_pixel(grip)[0] > free.grip_pixel(grip)[0] + 0.2


def test_resuming_goes_on_from_the_checkpoint(tiny_training: Path, tmp_path: Path) -> None:
    """nerfstudio trains `max_num_iterations` more steps after a checkpoint."""
    run(
        "ns-train", "lagsplat", "--data", tiny_training.parents[4] / "swing.mp4", "--output-dir", tmp_path,
        "--vis", "tensorboard", "--load-dir", tiny_training.parent / "nerfstudio_models", "--max-num-iterations", "5",
        folder=tmp_path,
    )  # fmt: skip
    (resumed,) = tmp_path.glob("*/lagsplat/*/config.yml")
    steps = [int(path.stem.split("-")[1]) for path in (resumed.parent / "nerfstudio_models").glob("*.ckpt")]
    assert max(steps) == 204
    before, after = Simulator.load(tiny_training), Simulator.load(resumed)
    assert float((before.render() - after.render()).abs().mean()) < 0.02


def test_a_checkpoint_of_another_method_is_refused(tiny_training: Path, tmp_path: Path) -> None:
    (tmp_path / "nerfstudio_models").mkdir()
    (tmp_path / "config.yml").write_text("method_name: splatfacto\n")
    torch.save({"pipeline": {"_model.means": torch.zeros(1)}}, tmp_path / "nerfstudio_models" / "step-000000001.ckpt")
    with pytest.raises(ValueError, match=r"A training must be one of lagsplat, but .* holds no latent scene"):
        Simulator.load(tmp_path / "config.yml")


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "nerfstudio_models").mkdir()
    (tmp_path / "config.yml").write_text("")
    (tmp_path / "nerfstudio_models" / "step-000000001.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="A checkpoint must be readable"):
        Simulator.load(tmp_path / "config.yml")


def test_a_training_without_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text("")
    with pytest.raises(FileNotFoundError, match="A training must have a checkpoint to be loaded"):
        Simulator.load(tmp_path / "config.yml")
