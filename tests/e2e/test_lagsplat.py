"""Train, save, reload: the same pictures; resume: goes on from there; and every command on a trained lagsplat.

One file, so that all of it shares one training. Commands run in processes of their own and without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lagsplat_ns.cli.videos import read_frames
from lagsplat_ns.simulator import Simulator
from tests.e2e.conftest import SCRIPTS, run
from tests.e2e.tiny_clip import START

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ns-render asks for the ffmpeg binary")


def folder_of(config: Path) -> Path:
    """The folder that the training was started in: paths in its config are relative to it."""
    return config.parents[4]


def read_picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


# ---- the training
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


# ---- commands
def test_eval_writes_psnr_and_ssim(tiny_training: Path, tmp_path: Path) -> None:
    output = tmp_path / "eval.json"
    run("ns-eval", "--load-config", tiny_training, "--output-path", output, folder=folder_of(tiny_training))
    results = json.loads(output.read_text())["results"]
    assert 12.0 < results["psnr"] < 60.0
    assert 0.0 < results["ssim"] <= 1.0


@needs_ffmpeg
def test_camera_path_past_the_end_before_the_start_and_backwards(tiny_training: Path, tmp_path: Path) -> None:
    """`lagsplat camera-path` and `ns-render camera-path` together show what `lagsplat rollout` shows."""
    path, rendered = tmp_path / "path.json", tmp_path / "rendered"
    span = ("--start", "3.0", "--end", "-0.6", "--fps", "1.5")
    run("lagsplat", "camera-path", "--load-config", tiny_training, "--output", path, *span, folder=tmp_path)
    times = [frame["render_time"] for frame in json.loads(path.read_text())["camera_path"]]
    assert times[0] > 1.0
    assert times[-1] < 0.0
    assert times == sorted(times, reverse=True)
    run(
        "ns-render", "camera-path", "--load-config", tiny_training, "--camera-path-filename", path,
        "--output-path", rendered, "--output-format", "images", "--image-format", "png",
        folder=folder_of(tiny_training),
    )  # fmt: skip
    run(
        "lagsplat", "rollout", "--load-config", tiny_training, "--output", tmp_path / "rollout.mp4", *span,
        folder=tmp_path,
    )  # fmt: skip
    frames, _ = read_frames(tmp_path / "rollout.mp4")
    pictures = sorted(rendered.rglob("*.png"))
    assert len(pictures) == len(times) == len(frames) == 6
    for picture, frame in zip(pictures, frames):
        assert np.abs(read_picture(picture).astype(float) - frame).mean() < 6.0


def test_export_writes_all_gaussians(tiny_training: Path, tmp_path: Path) -> None:
    run(
        "ns-export", "gaussian-splat", "--load-config", tiny_training, "--output-dir", tmp_path,
        folder=folder_of(tiny_training),
    )  # fmt: skip
    header = (tmp_path / "splat.ply").read_bytes().split(b"end_header")[0].decode()
    (count,) = [int(line.split()[-1]) for line in header.splitlines() if line.startswith("element vertex")]
    assert count > 100


def test_rollout_of_a_push(tiny_training: Path, tmp_path: Path) -> None:
    output = tmp_path / "a folder" / "pushed #1.mp4"
    printed = run(
        "lagsplat", "rollout", "--load-config", tiny_training, "--output", output, "--start", "0", "--end", "1",
        "--fps", "10", "--push.pixel", str(START[0]), str(START[1]), "--push.force", "8", "0", "--push.start", "0",
        "--push.end", "0.3", folder=tmp_path,
    )  # fmt: skip
    assert "11 frames from 0 s to 1 s" in printed
    frames, times = read_frames(output)
    assert len(frames) == 11
    assert times[-1] == pytest.approx(1.0, abs=1e-3)


def test_the_viewer_opens(tiny_training: Path) -> None:
    """The page of the viewer is served; stopped by ending the process that was started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    viewer = subprocess.Popen(
        [
            SCRIPTS / "ns-viewer", "--load-config", str(tiny_training), "--viewer.websocket-port", str(port),
            "--viewer.websocket-host", "127.0.0.1",
        ],
        cwd=folder_of(tiny_training), env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120.0
        page = b""
        while time.monotonic() < deadline and viewer.poll() is None and b"<html" not in page:
            with contextlib.suppress(OSError):
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5).read()
            time.sleep(0.5)
        assert viewer.poll() is None, "ns-viewer ended by itself"
        assert b"<html" in page
    finally:
        viewer.terminate()
        try:
            viewer.wait(10)
        except subprocess.TimeoutExpired:
            viewer.kill()
            viewer.wait(10)
