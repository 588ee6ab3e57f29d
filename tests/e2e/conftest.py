"""One short training on a tiny clip by nerfstudio's own command, shared by all end-to-end tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.tiny_clip import write_tiny_clip

SCRIPTS = Path(sys.executable).parent


def run(*arguments: str | Path, folder: Path, limit_s: float = 300.0) -> str:
    """Runs an installed command to its end in a folder and returns what it printed; fails with that if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def tiny_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config.yml of a short training."""
    folder = tmp_path_factory.mktemp("tiny")
    clip = write_tiny_clip(folder / "swing.mp4")
    run(
        "ns-train", "lagsplat", "--data", clip, "--output-dir", folder / "outputs", "--vis", "tensorboard",
        "--max-num-iterations", "200", "--pipeline.model.latent-dim", "1", "--pipeline.model.num-static", "2000",
        folder=folder,
    )  # fmt: skip
    (config,) = folder.glob("outputs/*/lagsplat/*/config.yml")
    return config
