"""Clips read right: true times, order, size, rotation, cuts, background, masks, flow, cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest

from lagsplat_ns.data.cache import cache_root
from lagsplat_ns.data.motion import FlowMeter, MovingPixels, camera_motion
from lagsplat_ns.data.prepare import PreparedClip, load_prepared, prepare_clips
from lagsplat_ns.data.settings import VideoSettings
from lagsplat_ns.data.sources import find_sources
from lagsplat_ns.data.timing import order_frames
from tests.video_clips import disc_center, swinging_disc, turn_by_tag, wall, write_pictures, write_video

TIMES = np.arange(40) * 0.04


@pytest.fixture
def clip_file(tmp_path: Path) -> Path:
    return write_video(tmp_path / "disc.mp4", swinging_disc(TIMES), TIMES)


def _one(path: Path, **options) -> PreparedClip:
    (clip,) = prepare_clips(path, VideoSettings(**options), quiet=True)
    return clip


def test_prepared_clip_has_consistent_arrays(clip_file: Path) -> None:
    clip = _one(clip_file)
    assert clip.frames.shape == (40, 64, 96, 3)
    assert clip.masks.shape == (40, 64, 96)
    assert clip.flow.shape == (39, 64, 96, 2)
    assert (clip.frames.dtype, clip.masks.dtype, clip.flow.dtype) == (np.uint8, bool, np.float16)
    assert clip.num_train == 32
    assert clip.source == clip_file
    assert clip.folder.parent == clip_file.parent / ".lagsplat"
    for path, frame in zip(clip.image_paths, clip.frames, strict=True):
        np.testing.assert_array_equal(np.asarray(cv2.imread(str(path)))[..., ::-1], frame)


def test_variable_frame_rate_gives_presentation_times(tmp_path: Path) -> None:
    times_s = np.cumsum(np.random.default_rng(1).choice([0.02, 0.033, 0.05, 0.1], 30)) + 1.5
    clip = _one(write_video(tmp_path / "phone.mp4", swinging_disc(times_s), times_s))
    np.testing.assert_allclose(clip.times_s, np.round(times_s, 3) - np.round(times_s[0], 3), atol=1e-9)


def test_b_frames_come_out_in_showing_order(tmp_path: Path) -> None:
    options = {"crf": "10", "bf": "3", "b-adapt": "0"}
    clip = _one(write_video(tmp_path / "b.mp4", swinging_disc(TIMES), TIMES, options=options))
    np.testing.assert_allclose(clip.times_s, TIMES, atol=1e-9)
    drawn = swinging_disc(TIMES)
    for frame, picture in zip(clip.frames, drawn, strict=True):
        assert np.abs(frame.astype(int) - picture).mean() < 4
    assert not any("fall" in warning for warning in clip.warnings)


def test_frames_out_of_order_are_sorted_by_their_times() -> None:
    position = np.arange(20.0)[:, None] * np.ones((1, 4))
    mixed = np.array([0, 1, 4, 2, 3, *range(5, 20)])
    order, times_s, warnings = order_frames(mixed * 0.1, position[mixed].astype(np.float32), "clip.mp4")
    np.testing.assert_array_equal(mixed[order], np.arange(20))
    np.testing.assert_allclose(times_s, np.arange(20) * 0.1)
    assert warnings == ["The presentation times of clip.mp4 fall 1 times: frames were sorted by their times."]


def test_times_out_of_order_are_sorted_where_the_pictures_are_in_order() -> None:
    position = (np.arange(20.0)[:, None] * np.ones((1, 4))).astype(np.float32)
    times_s = np.array([0, 3, 2, 1, *range(4, 20)]) * 0.1
    order, sorted_times, warnings = order_frames(times_s, position, "clip.mp4")
    np.testing.assert_array_equal(order, np.arange(20))
    np.testing.assert_allclose(sorted_times, np.arange(20) * 0.1)
    assert "fall 2 times: the file's frame order was kept" in warnings[0]


def test_repeated_times_are_left_out_and_gaps_reported() -> None:
    pictures = np.zeros((12, 4), dtype=np.float32)
    times_s = np.array([0, 1, 1, 2, 3, 4, 5, 25, 26, 27, 28, 29]) * 0.1
    order, kept, warnings = order_frames(times_s, pictures, "clip.mp4")
    np.testing.assert_array_equal(order, [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    assert np.all(np.diff(kept) > 0)
    assert "1 frames of clip.mp4 repeat the time" in warnings[0]
    assert "gap of 2.00 s after 0.50 s" in warnings[1]


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotation_tag_is_honored(tmp_path: Path, degrees: int) -> None:
    upright = _one(write_video(tmp_path / "a.mp4", swinging_disc(TIMES), TIMES))
    tagged_file = write_video(tmp_path / "b.mp4", swinging_disc(TIMES), TIMES)
    turn_by_tag(tagged_file, degrees)
    tagged = _one(tagged_file)
    np.testing.assert_array_equal(tagged.frames[5], np.rot90(upright.frames[5], -degrees // 90))
    np.testing.assert_array_equal(_one(tagged_file, rotation=0).frames[5], upright.frames[5])


def test_gray_and_odd_sizes_are_read(tmp_path: Path) -> None:
    pictures = [np.repeat(p.mean(axis=-1, keepdims=True), 3, -1).astype(np.uint8) for p in swinging_disc(TIMES, 63, 95)]
    folder = write_pictures(tmp_path / "gray", [])
    for k, picture in enumerate(pictures):
        cv2.imwrite(str(folder / f"{k}.png"), picture[..., 0])
    clip = _one(folder, frame_rate=25.0)
    assert clip.frames.shape == (40, 63, 95, 3)
    np.testing.assert_array_equal(clip.frames[3], pictures[3])


def test_animated_gif_is_read_with_its_times(tmp_path: Path) -> None:
    from PIL import Image

    images = [Image.fromarray(picture) for picture in swinging_disc(TIMES[:20])]
    images[0].save(tmp_path / "disc.gif", save_all=True, append_images=images[1:], duration=50, loop=0)
    clip = _one(tmp_path / "disc.gif")
    np.testing.assert_allclose(clip.times_s, np.arange(20) * 0.05, atol=1e-9)


def test_pictures_sort_naturally_and_take_times_from_a_table(tmp_path: Path) -> None:
    times_s = np.cumsum(np.linspace(0.02, 0.06, 20))
    folder = write_pictures(tmp_path / "frames", swinging_disc(times_s))
    (folder / "times.csv").write_text("\ufeffframe,time_s\n" + "\n".join(f"{k},{t:.6f}" for k, t in enumerate(times_s)))
    clip = _one(folder)
    np.testing.assert_allclose(clip.times_s, times_s - times_s[0], atol=1e-6)
    np.testing.assert_array_equal(clip.frames[11], swinging_disc(times_s)[11])  # frame11, not frame2, is the twelfth


def test_pictures_named_by_their_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for time_s, picture in zip(TIMES, swinging_disc(TIMES), strict=True):
        cv2.imwrite(str(folder / f"{time_s:.3f}.png"), picture)
    np.testing.assert_allclose(_one(folder).times_s, TIMES, atol=1e-9)


def test_pictures_without_times_say_what_was_assumed(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "frames", swinging_disc(TIMES))
    clip = _one(folder)
    assert any("taken at 30 per second" in warning for warning in clip.warnings)
    np.testing.assert_allclose(clip.times_s, np.arange(40) / 30)


def test_cut_and_stride(clip_file: Path) -> None:
    clip = _one(clip_file, start=0.2, end=1.2, frame_stride=2)
    np.testing.assert_allclose(clip.times_s, np.arange(13) * 0.08, atol=1e-9)
    np.testing.assert_array_equal(clip.frames[1], _one(clip_file).frames[7])


def test_large_pictures_shrink_and_small_ones_stay(tmp_path: Path) -> None:
    file = write_video(tmp_path / "large.mp4", swinging_disc(TIMES, 90, 120), TIMES)
    assert _one(file, max_side=60).frames.shape[1:3] == (45, 60)
    assert _one(file, max_side=800).frames.shape[1:3] == (90, 120)


def test_held_out_tail(clip_file: Path) -> None:
    assert [_one(clip_file, held_out=share).num_train for share in (0.0, 0.25, 0.5)] == [40, 30, 20]


def test_folder_with_several_clips(tmp_path: Path) -> None:
    for name in ("take10.mp4", "take2.mp4"):
        write_video(tmp_path / name, swinging_disc(TIMES), TIMES)
    (tmp_path / "poster.png").write_bytes(b"not looked at")
    clips = prepare_clips(tmp_path, quiet=True)
    assert [clip.source.name for clip in clips] == ["take2.mp4", "take10.mp4"]
    assert len(find_sources(tmp_path)) == 2


# ---- what is estimated


def test_background_masks_and_flow_match_the_drawing(clip_file: Path) -> None:
    clip = _one(clip_file)
    assert np.abs(clip.background.astype(int) - wall()).mean() < 2.5
    rows, columns = np.mgrid[:64, :96] + 0.5
    for time_s, mask in zip(TIMES, clip.masks, strict=True):
        x, y = disc_center(time_s)
        distance = np.hypot(columns - x, rows - y)
        assert mask[distance < 6.5].all()
        assert not mask[distance > 12].any()
    for k in (0, 1, 8, 9, 10, 11):  # near the turning points, where steps are a few pixels
        x, y = disc_center(TIMES[k])
        moved = disc_center(TIMES[k + 1])[0] - x
        assert np.median(clip.flow[k][np.hypot(columns - x, rows - y) < 4][:, 0]) == pytest.approx(moved, abs=0.7)


def test_brightness_shift_of_the_whole_picture_is_not_motion() -> None:
    samples = np.stack([wall(80, 120)] * 8)
    detector = MovingPixels(wall(80, 120), samples, noise=0.5)
    brighter = np.clip(wall(80, 120).astype(int) + 20, 0, 255).astype(np.uint8)
    assert not detector.mask(brighter).any()


def test_flow_of_a_tiny_picture_has_its_size() -> None:
    meter = FlowMeter()
    assert meter.next(wall(16, 40)) is None
    flow = meter.next(wall(16, 40))
    assert flow is not None
    assert flow.shape == (16, 40, 2)


def test_moving_camera_is_told_from_a_moving_thing() -> None:
    big = wall(200, 260, seed=3)
    panned = np.stack([big[20:120, 20 + 2 * k : 170 + 2 * k] for k in range(15)])
    motion = camera_motion(panned, np.arange(15))
    assert motion.is_moving
    assert motion.shift_px == pytest.approx(28, abs=1.5)
    still = np.stack(swinging_disc(TIMES[:15], 100, 150))
    assert not camera_motion(still, np.arange(15)).is_moving


def test_moving_camera_gives_a_warning_with_its_evidence(tmp_path: Path) -> None:
    discs = swinging_disc(TIMES, 120, 160)
    pictures = [np.roll(wall(120, 160, seed=3), 2 * k, axis=1) for k in range(len(discs))]
    for picture, disc in zip(pictures, discs, strict=True):
        moving = np.abs(disc.astype(int) - wall(120, 160)).max(axis=-1) > 20
        picture[moving] = disc[moving]
    clip = _one(write_video(tmp_path / "hand.mp4", pictures, TIMES))
    (warning,) = (w for w in clip.warnings if "camera" in w)
    assert "as a whole shifts by up to" in warning
    assert "points all over the picture agree" in warning


# ---- cache


def test_second_call_reads_the_cache(clip_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _one(clip_file)
    monkeypatch.setattr("lagsplat_ns.data.prepare._build", lambda *_: pytest.fail("prepared again"))
    again = _one(clip_file)
    np.testing.assert_array_equal(first.masks, again.masks)
    assert load_prepared(first.folder).times_s.tolist() == first.times_s.tolist()


def test_settings_and_content_choose_the_cache_folder(clip_file: Path) -> None:
    folders = {_one(clip_file, **options).folder for options in ({}, {"start": 0.1}, {"max_side": 64})}
    assert len(folders) == 3
    assert _one(clip_file, field_of_view=50.0).folder in folders  # the camera's angle changes nothing here
    write_video(clip_file, swinging_disc(TIMES + 0.1), TIMES)
    assert _one(clip_file).folder not in folders


def test_read_only_data_folder_leaves_it_untouched(clip_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    data, own = clip_file.parent, tmp_path.parent / f"{tmp_path.name}-cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    data.chmod(0o555)
    try:
        clip = _one(clip_file)
        assert [f.name for f in data.iterdir()] == ["disc.mp4"]
    finally:
        data.chmod(0o755)
    assert clip.folder.parent == own / "lagsplat"
    assert cache_root(data, None) == data / ".lagsplat"


def test_cache_dir_is_used_when_given(clip_file: Path, tmp_path: Path) -> None:
    assert _one(clip_file, cache_dir=tmp_path / "elsewhere" / "deep").folder.parent == tmp_path / "elsewhere" / "deep"


def test_an_interrupted_run_leaves_nothing_behind(clip_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lagsplat_ns.data.prepare.estimate_background", stopped)
        with pytest.raises(KeyboardInterrupt):
            _one(clip_file)
    assert list((clip_file.parent / ".lagsplat").iterdir()) == []
    assert _one(clip_file).frames.shape[0] == 40


def test_concurrent_runs_agree(clip_file: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        clips = list(pool.map(lambda _: _one(clip_file), range(3)))
    assert len({clip.folder for clip in clips}) == 1
    assert [f.name for f in (clip_file.parent / ".lagsplat").iterdir()] == [clips[0].folder.name]
