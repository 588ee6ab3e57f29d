"""Data that cannot be trained on leaves no output folder that looks like a training."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from lagsplat_ns.configs import lagsplat
from lagsplat_ns.data.errors import DataError


def test_unusable_data_leaves_no_config(tmp_path: Path) -> None:
    clip = tmp_path / "notes.mp4"
    clip.write_text("this is not a video")
    config = deepcopy(lagsplat.config)
    config.pipeline.datamanager.data = clip
    config.output_dir, config.timestamp = tmp_path / "outputs", "now"
    with pytest.raises(DataError, match=r"must be a video that FFmpeg can read, but .*notes\.mp4 is not"):
        config.save_config()
    assert not (tmp_path / "outputs").exists()
