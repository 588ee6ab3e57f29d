"""One short training on a tiny clip, shared by all end-to-end tests."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from lagsplat_ns.cli.training import train
from tests.e2e.tiny_clip import write_tiny_clip


@pytest.fixture(scope="session")
def tiny_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config.yml of a short training."""
    folder = tmp_path_factory.mktemp("tiny")
    clip = write_tiny_clip(folder / "swing.mp4")
    with contextlib.redirect_stdout(io.StringIO()):
        return train(clip, folder / "outputs", max_num_iterations=60)
