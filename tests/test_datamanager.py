"""nerfstudio's view of a clip: splits, times, the fixed pose, more than 500 frames without CUDA."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from lagsplat_ns.data import video_dataparser
from lagsplat_ns.data.datamanager import VideoDataManager, VideoDataManagerConfig
from lagsplat_ns.data.video_dataparser import VideoDataParserConfig, lagsplat_video
from lagsplat_ns.render.filming import FilmingCamera
from tests.video_clips import swinging_disc, write_video

TIMES = np.cumsum(np.tile([0.02, 0.04, 0.06], 10)) - 0.02


@pytest.fixture
def clip_file(tmp_path: Path) -> Path:
    return write_video(tmp_path / "disc.mp4", swinging_disc(TIMES), TIMES)


def test_splits_times_and_pose(clip_file: Path) -> None:
    parser = VideoDataParserConfig(data=clip_file).setup()
    assert parser.includes_time
    train, val, test = (parser.get_dataparser_outputs(split) for split in ("train", "val", "test"))
    assert (len(train.image_filenames), len(val.image_filenames), len(test.image_filenames)) == (24, 6, 6)
    all_times = torch.cat([train.cameras.times, val.cameras.times])[:, 0].double().numpy()
    duration = TIMES[-1] - TIMES[0]
    np.testing.assert_allclose(all_times, (TIMES - TIMES[0]) / duration, atol=1e-6)
    assert train.metadata["seconds_per_unit"] == pytest.approx(duration)
    assert train.metadata["num_train"] == [24]
    camera = FilmingCamera(96, 64, 1.2 * 96)
    for pose in val.cameras.camera_to_worlds:
        torch.testing.assert_close(pose, camera.world_from_camera())
    torch.testing.assert_close(val.cameras[0].get_intrinsics_matrices(), camera.intrinsics())
    assert [Path(p).is_file() for p in val.image_filenames] == [True] * 6


def test_field_of_view_sets_focal_length_and_distance(clip_file: Path) -> None:
    outputs = VideoDataParserConfig(data=clip_file, field_of_view=90.0).setup().get_dataparser_outputs("train")
    assert outputs.cameras.fx[0].item() == pytest.approx(48)
    assert outputs.cameras.camera_to_worlds[0, 1, 3].item() == pytest.approx(-1.0)


def test_folder_of_clips_holds_out_the_tail_of_each(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, swinging_disc(TIMES), TIMES)
    parser = VideoDataParserConfig(data=tmp_path).setup()
    train, val = (parser.get_dataparser_outputs(split).metadata for split in ("train", "val"))
    assert train["clip_index"] == [0] * 24 + [1] * 24
    assert val["frame_index"] == [*range(24, 30), *range(24, 30)]


def test_nothing_held_out_evaluates_on_all_frames(clip_file: Path) -> None:
    parser = VideoDataParserConfig(data=clip_file, held_out=0.0).setup()
    assert [len(parser.get_dataparser_outputs(s).image_filenames) for s in ("train", "val")] == [30, 30]


def test_specification_imports_nothing_that_is_half_built_when_it_is_read() -> None:
    """nerfstudio reads data parser plugins while nerfstudio.configs and its data managers are being imported."""
    assert isinstance(lagsplat_video.config, VideoDataParserConfig)
    tree = ast.parse(Path(video_dataparser.__file__).read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "nerfstudio.cameras.cameras" in imported
    assert not [name for name in imported if name.startswith(("nerfstudio.configs", "nerfstudio.data.datamanagers"))]
    assert not [name for name in imported if name.startswith("lagsplat_ns") and ".data" not in name]


def test_more_than_500_frames_load_on_a_cpu(tmp_path: Path) -> None:
    times_s = np.arange(640) / 60
    file = write_video(tmp_path / "long.mp4", swinging_disc(times_s, 32, 48), times_s)
    manager = VideoDataManagerConfig(dataparser=VideoDataParserConfig(data=file)).setup(device="cpu")
    assert isinstance(manager, VideoDataManager)
    seen = set()
    for step in range(512):
        camera, batch = manager.next_train(step)
        seen.add(batch["image_idx"])
        frame = manager.clips[0].frames[batch["image_idx"]]
        np.testing.assert_array_equal(batch["image"].numpy(), frame)
        assert camera.times is not None
        assert camera.times.item() == pytest.approx(times_s[batch["image_idx"]] / times_s[-1], abs=2e-4)
    assert len(seen) == 512
    assert manager.cached_train[0]["image"].dtype == torch.uint8
    camera, batch = manager.next_eval(0)
    assert camera.times is not None
    assert camera.times.item() > 0.79
    assert len(manager.fixed_indices_eval_dataloader) == 128
