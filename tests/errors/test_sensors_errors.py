"""Sensor logs that cannot be used: one error that names the file, the row and the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lagsplat_ns.data.errors import DataError
from lagsplat_ns.data.prepare import prepare_clips
from lagsplat_ns.data.sensors import SensorLog, read_measurements, read_sensors, shared_inputs
from tests.video_clips import swinging_disc, write_video


def _refused(tmp_path: Path, text: str | bytes, *words: str, columns: tuple[str, ...] = ("auto",)) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as caught:
        read_sensors(file, columns, "linear", 0.0, 1.0)
    problem, remedy = str(caught.value).split("\n")
    assert ", but " in problem
    assert "log.csv" in problem
    assert remedy.startswith("  ")
    for word in words:
        assert word in str(caught.value)


def test_falling_time_names_both_rows(tmp_path: Path) -> None:
    text = "time_s,u_V\n" + "".join(f"{t},0\n" for t in (0.0, 0.1, 0.433, 0.4, 0.5))
    _refused(tmp_path, text, "`time_s` must increase, but row 5 (0.400 s) follows row 4 (0.433 s)", "Sort the rows")


def test_repeated_time(tmp_path: Path) -> None:
    _refused(tmp_path, "t,u_V\n0,0\n0.1,0\n0.1,1\n", "row 4 (0.100 s) follows row 3 (0.100 s)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time_s,u_V\n", "has only its first line"),
        ("", "is empty"),
        ("u_V,p_kPa\n1,2\n", "must have a time column"),
        ("0,1\n0.1,2\n", "must name its columns"),
        ("t,u_V\n0,1\n0.1,high\n", "row 3"),
        ("t,u_V\n0,1\nnan,2\n", "must be finite everywhere"),
        ("t,u_V\n0,1\n,2\n", "says 'nothing'"),
        ("t,u_V\n0,1\n0.1,inf\n", "must be finite everywhere"),
        ("t,u_V\n0,\n0.5,nan\n", "must have values"),
        ("t,u_V\n5,1\n6,1\n", "runs from 5.000 s to 6.000 s"),
        ("t,u_V,u_V\n0,1,1\n", "u_V more than once"),
        (b"\x00\x01\x02PK", "must be a text file"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str | bytes, words: str) -> None:
    _refused(tmp_path, text, words)


def test_unknown_columns_list_what_is_there(tmp_path: Path) -> None:
    _refused(tmp_path, "t,torque\n0,1\n1,2\n", "it has no torqe", "It has: t, torque.", columns=("torqe",))


def test_a_column_is_an_input_or_a_measurement(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("t,torque_Nm\n0,1\n1,2\n")
    with pytest.raises(DataError, match="must be an input or a measurement, but torque_Nm"):
        read_sensors(file, ("torque_Nm",), "linear", 0.0, 1.0, ("torque_Nm",))
    with pytest.raises(
        DataError, match=r"`measurement_columns` must name columns .* but it has no angle\.\n  It has: t"
    ):
        read_measurements(file, ("angle",), 0.0, 1.0)


def test_clips_logged_with_different_inputs() -> None:
    a = SensorLog(np.arange(2.0), np.zeros((2, 1)), ("a_V",), ("V",))
    b = SensorLog(np.arange(2.0), np.zeros((2, 1)), ("b_V",), ("V",))
    with pytest.raises(DataError, match=r"same inputs, but two\.mp4 has b_V and one\.mp4 has a_V"):
        shared_inputs([("one.mp4", a), ("two.mp4", b)])


def test_a_bad_log_stops_the_clip_and_leaves_the_cache_clean(tmp_path: Path) -> None:
    times_s = np.arange(20) * 0.04
    file = write_video(tmp_path / "arm.mp4", swinging_disc(times_s), times_s)
    (tmp_path / "arm.csv").write_text("time_s,u_V\n9,1\n8,1\n")
    with pytest.raises(DataError, match="must increase"):
        prepare_clips(file, quiet=True)
    assert list((tmp_path / ".lagsplat").iterdir()) == []
