"""The `lagsplat` command: times, videos, camera paths, and what it says about wrong arguments."""

from __future__ import annotations

import json
import math
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from lagsplat_ns.cli import main as cli
from lagsplat_ns.cli.camera_path import camera_path
from lagsplat_ns.cli.drawing import beside, labeled, with_arrow
from lagsplat_ns.cli.rollout import Push, rollout_pictures
from lagsplat_ns.cli.spans import frame_times
from lagsplat_ns.cli.videos import even_size, read_frames, to_uint8, write_mp4
from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import HEIGHT, WIDTH, FakeScene, filming_camera


@pytest.fixture
def sim() -> Simulator:
    return Simulator(FakeScene(), filming_camera())


# ---- spans of time
@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((0.0, 1.0, 4.0), [0.0, 0.25, 0.5, 0.75, 1.0]),
        ((1.0, 0.0, 4.0), [1.0, 0.75, 0.5, 0.25, 0.0]),
        ((-0.5, 0.1, 4.0), [-0.5, -0.25, 0.0]),
        ((2.0, 2.0, 30.0), [2.0]),
    ],
)
def test_frame_times(span: tuple[float, float, float], expected: list[float]) -> None:
    assert frame_times(*span) == pytest.approx(expected)


def test_speed_stretches_time() -> None:
    assert frame_times(0.0, 1.0, 4.0, speed=2.0) == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ((math.nan, 1.0, 30.0, 1.0), "`--start` must be a finite number"),
        ((0.0, math.inf, 30.0, 1.0), "`--end` must be a finite number"),
        ((0.0, 1.0, 0.0, 1.0), "`--fps` must be positive, but is 0.0"),
        ((0.0, 1.0, 30.0, -1.0), "give an --end before the --start"),
    ],
)
def test_impossible_spans(span: tuple[float, float, float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        frame_times(*span)


# ---- videos
def test_odd_sizes_are_padded_by_repeating_the_border() -> None:
    picture = np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3)
    even = even_size(picture)
    assert even.shape == (4, 6, 3)
    assert np.array_equal(even[:3, :5], picture)
    assert np.array_equal(even[3, :5], picture[2])
    assert np.array_equal(even[:3, 5], picture[:, 4])


def test_video_round_trip(tmp_path: Path) -> None:
    shades = [np.full((33, 25, 3), value, dtype=np.uint8) for value in (20, 90, 160, 230)]
    path = tmp_path / "a folder" / "größe #1.mp4"
    assert write_mp4(path, iter(shades), 15.0) == 4
    frames, times = read_frames(path)
    assert [frame.shape for frame in frames] == [(34, 26, 3)] * 4
    assert times == pytest.approx([0.0, 1 / 15, 2 / 15, 3 / 15], abs=1e-3)
    for frame, shade in zip(frames, shades):
        assert float(np.abs(frame[4:-4, 4:-4].astype(float) - shade[0, 0]).max()) <= 3
    assert [p.name for p in path.parent.iterdir()] == ["größe #1.mp4"]


def test_an_interrupted_video_leaves_nothing(tmp_path: Path) -> None:
    def pictures():
        yield np.zeros((16, 16, 3), dtype=np.uint8)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_mp4(tmp_path / "a.mp4", pictures(), 30.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "pictures", "rate", "words"),
    [
        ("a.avi", [np.zeros((16, 16, 3), np.uint8)], 30.0, r"must end in .mp4, but is 'a.avi'"),
        ("a.mp4", [], 30.0, "at least one picture, but got none"),
        ("a.mp4", [np.zeros((16, 16, 3), np.uint8)], 0.0, "must be a positive number, but are 0.0"),
    ],
)
def test_impossible_videos(tmp_path: Path, name: str, pictures: list, rate: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_mp4(tmp_path / name, pictures, rate)
    assert list(tmp_path.iterdir()) == []


def test_drawings_have_the_stated_sizes() -> None:
    picture = np.zeros((20, 30, 3), dtype=np.uint8)
    assert labeled(picture, "text").shape == (44, 30, 3)
    assert beside([picture, picture], gap=4).shape == (20, 64, 3)
    arrow = with_arrow(picture, (5.0, 5.0), (15.0, 0.0))
    assert arrow[5, 12].tolist() == [209, 73, 91]
    assert picture.max() == 0


# ---- rollouts
def test_without_a_push_pictures_are_those_of_seeking(sim: Simulator) -> None:
    times = [-0.5, 0.7, 3.1]
    for time, picture in zip(times, rollout_pictures(sim, times)):
        sim.seek(time)
        assert np.array_equal(picture, to_uint8(sim.render()))


def test_backwards_is_forwards_reversed(sim: Simulator) -> None:
    times = frame_times(-0.2, 2.4, 10.0)
    forwards = list(rollout_pictures(sim, times))
    backwards = list(rollout_pictures(sim, times[::-1]))
    assert all(np.array_equal(a, b) for a, b in zip(forwards, backwards[::-1]))


def test_a_push_acts_from_its_beginning_to_its_end(sim: Simulator) -> None:
    """Also when its edges fall between frames: the state agrees with steps cut exactly there."""
    sim.seek(0.5)
    x, y = sim.filming_camera.project(sim.means()[20].double()).tolist()
    push = Push(pixel=(x, y), force=(4.0, 0.0), start=0.5, end=0.73)
    pictures = list(rollout_pictures(sim, frame_times(0.0, 1.5, 10.0), push=push))
    ended = sim.state.q.clone()
    sim.seek(0.5)
    grip = sim.grab((x, y))
    sim.step(0.23, forces=[(grip, (4.0, 0.0))])
    sim.step(0.77)
    assert float((sim.state.q - ended).abs().max()) < 1e-6
    sim.seek(0.5)
    assert np.array_equal(pictures[5], to_uint8(sim.render()))
    sim.seek(1.5)
    assert float((sim.state.q - ended).abs().max()) > 0.05


def test_from_rest_nothing_moves_until_the_push(sim: Simulator) -> None:
    sim.rest()
    x, y = sim.filming_camera.project(sim.means()[20].double()).tolist()
    push = Push(pixel=(x, y), force=(4.0, 0.0), start=0.3, end=0.5)
    pictures = list(rollout_pictures(sim, frame_times(0.0, 1.0, 10.0), push=push, from_rest=True))
    assert np.array_equal(pictures[0], pictures[3])
    assert not np.array_equal(pictures[3], pictures[6])


def test_a_push_on_the_background_is_refused(sim: Simulator) -> None:
    push = Push(pixel=(1.0, 1.0), force=(1.0, 0.0), start=0.0, end=0.5)
    with pytest.raises(ValueError, match=r"must meet the moving thing, but pixel \(1.0, 1.0\) shows only background"):
        list(rollout_pictures(sim, [0.0, 0.5], push=push))


@pytest.mark.parametrize(
    ("push", "span", "words"),
    [
        (Push(force=(1.0, 0.0)), (0.0, 1.0), "A push must have a pixel"),
        (Push(pixel=(1.0, 1.0)), (1.0, 0.0), "needs time that runs forwards"),
        (Push(pixel=(1.0, 1.0), start=0.5, end=0.5), (0.0, 1.0), "end after it began"),
        (Push(pixel=(1.0, 1.0), start=-1.0, end=0.5), (0.0, 1.0), "must begin inside the span"),
    ],
)
def test_impossible_pushes(push: Push, span: tuple[float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        push.check(*span)


# ---- camera paths
def test_camera_path_is_read_by_nerfstudio_as_it_was_meant(tmp_path: Path) -> None:
    from nerfstudio.cameras.camera_paths import get_path_from_json

    camera = filming_camera()
    times = [1.4, 0.5, -0.3]
    path = tmp_path / "path.json"
    path.write_text(json.dumps(camera_path(camera, times, 30.0)))
    cameras = get_path_from_json(json.loads(path.read_text()))
    assert cameras.times is not None
    assert cameras.times.reshape(-1).tolist() == pytest.approx(times)
    assert (int(cameras.width[0]), int(cameras.height[0])) == (WIDTH, HEIGHT)
    assert float(cameras.fx[0]) == pytest.approx(camera.fx, rel=1e-5)
    expected = camera.world_from_camera[:3].float()
    torch.testing.assert_close(cameras.camera_to_worlds[2], expected, rtol=0, atol=1e-6)


# ---- the command itself
@pytest.mark.parametrize("command", ["demo", "rollout", "camera-path", "bench"])
def test_every_subcommand_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code in (0, None)
    assert f"usage: lagsplat {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["rollout", "camera-path"])
def test_a_missing_training_is_named(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--load-config", str(tmp_path / "config.yml")])
    assert end.value.code == 1
    message = capsys.readouterr().err
    assert "FileNotFoundError: A training is loaded from its config.yml" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--scenes", "pendulm"], "`--scenes` must name scenes of the benchmark, but has 'pendulm'"),
        (["--seeds", "-1"], "`--seeds` must be numbers from 0 on, but is [-1]"),
        (["--output", "taken"], "`--output` must be a folder, but taken is a file"),
        (["--write-clips", "taken"], "`--write-clips` must be a folder, but taken is a file"),
        (["--variants", "best", "--output", "new"], "`--variants` must name ways to train, but has 'best'"),
    ],
)
def test_what_the_benchmark_cannot_do_is_named(
    options: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", *options])
    assert end.value.code == 1
    assert expected in capsys.readouterr().err


def test_a_video_library_is_there() -> None:
    assert "libx264" in av.codecs_available
