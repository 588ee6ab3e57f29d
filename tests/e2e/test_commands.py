"""nerfstudio's own commands, and ours, on a trained lagsplat, in processes of their own and without a GPU."""

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

from lagsplat_ns.cli.videos import read_frames
from tests.e2e.conftest import SCRIPTS, run
from tests.e2e.tiny_clip import START

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ns-render asks for the ffmpeg binary")


def folder_of(config: Path) -> Path:
    """The folder that the training was started in: paths in its config are relative to it."""
    return config.parents[4]


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


def read_picture(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))
