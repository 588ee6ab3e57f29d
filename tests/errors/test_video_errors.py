"""Clips that cannot be used: one error that says what must hold, what came and what to do, and a clean cache."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from lagsplat_ns.data.errors import DataError, MissingDataError
from lagsplat_ns.data.prepare import prepare_clips
from lagsplat_ns.data.settings import VideoSettings
from tests.video_clips import swinging_disc, wall, write_pictures, write_video

TIMES = np.arange(20) * 0.04


def _refused(path: Path, *words: str, **options) -> None:
    """The clip is refused in the usual layout with all of these words, and nothing stays in the cache."""
    with pytest.raises(DataError) as caught:
        prepare_clips(path, VideoSettings(**options), quiet=True)
    problem, remedy = str(caught.value).split("\n")
    assert "must" in problem or "takes" in problem
    assert ", but " in problem
    assert remedy.startswith("  ")
    assert remedy.endswith((".", path.name, str(path.parent), "FILE."))
    for word in words:
        assert word in str(caught.value)
    for cache in path.rglob(".lagsplat") if path.is_dir() else path.parent.glob(".lagsplat"):
        assert not list(cache.glob(".partial*"))
        if not options.get("allow_others"):
            assert not [f for f in cache.iterdir() if f.name.startswith(f"{path.stem}-")]


def test_missing_path(tmp_path: Path) -> None:
    _refused(tmp_path / "no.mp4", "there is nothing at", str(tmp_path / "no.mp4"))
    with pytest.raises(FileNotFoundError):
        prepare_clips(tmp_path / "no.mp4")
    assert issubclass(MissingDataError, DataError)


def test_zero_bytes(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    _refused(tmp_path / "empty.mp4", "empty.mp4 has zero bytes")


def test_text_named_mp4(tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_text("remember to film the pendulum\n" * 50)
    _refused(tmp_path / "notes.mp4", "must be a video that FFmpeg can read", "notes.mp4")


def test_truncated_file_without_index(tmp_path: Path) -> None:
    file = write_video(tmp_path / "cut.mp4", swinging_disc(TIMES), TIMES)
    file.write_bytes(file.read_bytes()[:700])
    _refused(file, "cut.mp4")


def test_sound_without_pictures(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    _refused(tmp_path / "sound.wav", "must hold a video stream")


def test_single_picture(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "one.png"), wall())
    _refused(tmp_path / "one.png", "is a single picture")


def test_empty_folder(tmp_path: Path) -> None:
    _refused(tmp_path, f"{tmp_path} is empty")


def test_folder_without_clips(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("nothing to see")
    _refused(tmp_path, "holds 1 files, none of them a video or a picture")


def test_folder_of_posed_pictures(tmp_path: Path) -> None:
    write_pictures(tmp_path / "posed", swinging_disc(TIMES))
    (tmp_path / "posed" / "transforms_train.json").write_text("{}")
    _refused(tmp_path / "posed", "holds posed pictures")


@pytest.mark.parametrize(("options", "count"), [({}, 7), ({"frame_stride": 3}, 7), ({"end": 0.2}, 6)])
def test_too_few_frames(tmp_path: Path, options: dict, count: int) -> None:
    times_s = TIMES[:7] if not options else TIMES
    file = write_video(tmp_path / "short.mp4", swinging_disc(times_s), times_s)
    _refused(file, "at least 8 frames", f"has {count} (of {len(times_s)}", **options)


def test_start_past_the_end(tmp_path: Path) -> None:
    file = write_video(tmp_path / "clip.mp4", swinging_disc(TIMES), TIMES)
    _refused(file, "lasts 0.76 s", "begins at 5 s", start=5.0)


def test_nothing_moves(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 2, (20, 64, 96, 3))
    pictures = [np.clip(wall() + n, 0, 255).round().astype(np.uint8) for n in noise]
    _refused(write_pictures(tmp_path / "still", pictures), "must move", "of 16 frames differ", frame_rate=25.0)


def test_nothing_moves_in_a_compressed_clip(tmp_path: Path) -> None:
    file = write_video(tmp_path / "still.mp4", [wall()] * 20, TIMES, options={"crf": "30"})
    _refused(file, "nothing in", "does: 0 of 16 frames differ")


def test_pictures_of_different_sizes(tmp_path: Path) -> None:
    pictures = [*swinging_disc(TIMES), wall(48, 96)]
    folder = write_pictures(tmp_path / "mixed", pictures)
    _refused(folder, "frame20.png", "96 x 48 pixels and the first has 96 x 64", frame_rate=25.0)


def test_clips_of_different_sizes(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", swinging_disc(TIMES), TIMES)
    write_video(tmp_path / "b.mp4", swinging_disc(TIMES, 64, 64), TIMES)
    _refused(tmp_path, "All clips must have one picture size", "b.mp4 has 64 x 64", "a.mp4 has 96 x 64")


def test_size_change_inside_a_stream(tmp_path: Path) -> None:
    parts = [
        write_video(tmp_path / f"{h}.ts", swinging_disc(TIMES, h, 96), TIMES, options={"crf": "10", "bf": "0"})
        for h in (64, 48)
    ]
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    _refused(joined, "All frames must have one size", "96 x 48 pixels and the first has 96 x 64")


def test_unreadable_picture(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "frames", swinging_disc(TIMES))
    (folder / "frame3.png").write_bytes(b"\x89PNG broken")
    _refused(folder, "must be readable", "frame3.png", frame_rate=25.0)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("frame,when\n0,0\n", "must have a column time_s"),
        ("time_s\n0.0\n0.1\n", "has 2 rows for 20 pictures"),
        ("time_s\n" + "0.0\n" * 19 + "soon\n", "row 21"),
        ("time_s\n" + "0.0\n" * 19 + "nan\n", "must be finite"),
        ("", "must have a column time_s"),
    ],
)
def test_bad_table_of_times(tmp_path: Path, table: str, words: str) -> None:
    folder = write_pictures(tmp_path / "frames", swinging_disc(TIMES))
    (folder / "times.csv").write_text(table)
    _refused(folder, words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": 2.0, "end": 1.0}, "start is 2 s and end is 1 s"),
        ({"start": 1.0, "end": 1.0}, "`end` must come after `start`"),
        ({"start": -1.0}, "`start` must not be negative"),
        ({"end": float("nan")}, "`end` must be a finite number"),
        ({"held_out": 1.0}, "`held_out` must lie between 0 and 0.8"),
        ({"held_out": -0.1}, "but it is -0.1"),
        ({"held_out": float("nan")}, "but it is nan"),
        ({"frame_stride": 0}, "`frame_stride` must be 1 or more"),
        ({"max_side": 4}, "`max_side` must be 16 pixels or more"),
        ({"field_of_view": 180.0}, "between 1 and 170 degrees"),
        ({"frame_rate": 0.0}, "`frame_rate` must be positive"),
    ],
)
def test_settings_out_of_range(tmp_path: Path, options: dict, words: str) -> None:
    file = write_video(tmp_path / "clip.mp4", swinging_disc(TIMES), TIMES)
    _refused(file, words, **options)


def test_damaged_tail_is_cut_with_a_warning_or_refused(tmp_path: Path) -> None:
    file = write_video(tmp_path / "torn.mkv", swinging_disc(TIMES), TIMES)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * 0.8)])
    (clip,) = prepare_clips(file, quiet=True)
    assert 8 <= len(clip.times_s) < 20
