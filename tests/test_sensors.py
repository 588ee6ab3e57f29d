"""Sensor logs as loggers and spreadsheets write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lagsplat_ns.data.prepare import load_prepared, prepare_clips
from lagsplat_ns.data.sensors import SensorLog, find_sensor_file, read_sensors
from lagsplat_ns.data.settings import VideoSettings
from lagsplat_ns.data.sources import ClipSource
from tests.video_clips import swinging_disc, write_video

AUTO = ("auto",)


def _read(
    tmp_path: Path,
    text: str | bytes,
    columns=AUTO,
    offset_s=0.0,
    duration_s=0.3,
):
    file = tmp_path / "log.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_sensors(file, columns, "linear", offset_s, duration_s)


def test_columns_with_an_input_unit_are_taken_and_named(tmp_path: Path) -> None:
    text = "time_s,pressure_kPa,angle_deg,torque [Nm]\n0,1,9,0.5\n0.1,2,9,0.6\n0.3,4,9,0.7\n"
    log, notes = _read(tmp_path, text)
    assert log is not None
    assert log.names == ("pressure_kPa", "torque [Nm]")
    assert log.units == ("kPa", "Nm")
    np.testing.assert_array_equal(log.values, [[1, 0.5], [2, 0.6], [4, 0.7]])
    assert notes == ["Inputs from log.csv: pressure_kPa, torque [Nm]. Left out: angle_deg."]


def test_a_reference_track_is_not_an_input(tmp_path: Path) -> None:
    log, notes = _read(tmp_path, "t,x_px,y_px,area_px\n0,1,2,3\n0.1,1,2,3\n")
    assert log is None
    assert "holds no measured inputs (columns t, x_px, y_px, area_px)" in notes[0]


def test_named_columns_need_no_unit(tmp_path: Path) -> None:
    log, _ = _read(tmp_path, "time,position,torque\n0,5,1\n0.3,5,2\n", ("torque",))
    assert log is not None
    assert (log.names, log.units) == (("torque",), ("",))


@pytest.mark.parametrize(
    "text",
    [
        "time_s;p_kPa\n0,0;1,5\n0,1;2,5\n0,3;3,5\n".encode("utf-8-sig"),
        "time_s\tp_kPa\n0.0\t1.5\n0.1\t2.5\n0.3\t3.5\n".encode("utf-16"),
        b"# made by a logger\r\n# time_s, p_kPa\r\n0.0, 1.5\r\n\r\n0.1, 2.5\r\n0.3, 3.5\r\n",
        b'"time_ms","p_kPa"\n0,1.5\n100,2.5\n300,3.5\n',
        b"Time (s),p (kPa)\n0,1.5\n.1,2.5\n3e-1,3.5\n",
    ],
    ids=["semicolons, decimal commas, byte-order mark", "UTF-16 tabs", "comments", "milliseconds", "spaces"],
)
def test_dialects_read_alike(tmp_path: Path, text: bytes) -> None:
    log, _ = _read(tmp_path, text)
    assert log is not None
    np.testing.assert_allclose(log.times_s, [0, 0.1, 0.3])
    np.testing.assert_allclose(log.values[:, 0], [1.5, 2.5, 3.5])
    assert log.units == ("kPa",)


def test_dates_count_from_the_first_row_without_losing_digits(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + k * 0.001:.3f},{k}\n" for k in range(400))
    log, notes = _read(tmp_path, "time,motor_V\n" + rows)
    assert log is not None
    np.testing.assert_allclose(np.diff(log.times_s), 0.001, atol=1e-6)
    assert log.times_s[0] == 0
    assert "its first row is taken as the clip's first frame" in notes[1]


def test_missing_values_are_filled_between_neighbors(tmp_path: Path) -> None:
    log, notes = _read(tmp_path, "t,u_V\n0,1\n0.1,nan\n0.2,\n0.3,4\n")
    assert log is not None
    np.testing.assert_allclose(log.values[:, 0], [1, 2, 3, 4])
    assert "2 of 4 values of u_V are missing" in notes[1]


def test_times_shift_with_the_start_of_the_part_in_use(tmp_path: Path) -> None:
    log, _ = _read(tmp_path, "t,u_V\n0,1\n1,2\n2,3\n", offset_s=0.5, duration_s=1.0)
    assert log is not None
    np.testing.assert_allclose(log.times_s, [-0.5, 0.5, 1.5])
    np.testing.assert_allclose(log.at(np.array([0.0, 0.5])), [[1.5], [2.0]])


def test_partial_cover_is_reported(tmp_path: Path) -> None:
    _, notes = _read(tmp_path, "t,u_V\n0,1\n1,2\n", duration_s=4.0)
    assert "covers 25% of the clip" in notes[1]


def test_interpolation_between_and_beyond_rows() -> None:
    log = SensorLog(
        np.array([0.0, 1.0, 2.0]), np.array([[0.0, 5.0], [1.0, 5.0], [4.0, 7.0]]), ("a_V", "b_A"), ("V", "A")
    )
    times_s = np.array([-1.0, 0.5, 1.0, 1.75, 9.0])
    np.testing.assert_allclose(log.at(times_s), [[0, 5], [0.5, 5], [1, 5], [3.25, 6.5], [4, 7]])
    held = SensorLog(log.times_s, log.values, log.names, log.units, "hold")
    np.testing.assert_allclose(held.at(times_s), [[0, 5], [0, 5], [1, 5], [1, 5], [4, 7]])
    assert log.at(np.array(0.5)).shape == (2,)


def test_log_beside_the_clip_reaches_the_prepared_clip(tmp_path: Path) -> None:
    times_s = np.arange(20) * 0.04
    file = write_video(tmp_path / "arm.mp4", swinging_disc(times_s), times_s)
    (tmp_path / "sensors.csv").write_text("time_s,flow_V\n0,0\n1,1\n")
    (tmp_path / "arm.csv").write_text("time_s,pressure_kPa\n0,0\n1,10\n")
    assert find_sensor_file(ClipSource(file)) == tmp_path / "arm.csv"
    (clip,) = prepare_clips(file, VideoSettings(start=0.2), quiet=True)
    assert clip.sensors is not None
    np.testing.assert_allclose(clip.sensors.at(clip.times_s)[:, 0], 10 * (clip.times_s + 0.2), atol=1e-9)
    assert clip.notes == ["Inputs from arm.csv: pressure_kPa."]
    assert clip.warnings == []
    again = load_prepared(clip.folder).sensors
    assert again is not None
    assert (again.names, again.units, again.interpolation) == (("pressure_kPa",), ("kPa",), "linear")

    (tmp_path / "arm.csv").unlink()
    (other,) = prepare_clips(file, quiet=True)
    assert other.sensors is not None
    assert other.sensors.names == ("flow_V",)
    (none,) = prepare_clips(file, VideoSettings(sensor_columns=("none",)), quiet=True)
    assert none.sensors is None
