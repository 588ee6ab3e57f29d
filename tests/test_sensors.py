"""Sensor logs as loggers and spreadsheets write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lagsplat_ns.data.prepare import load_prepared, prepare_clips
from lagsplat_ns.data.sensors import SensorLog, find_sensor_file, read_measurements, read_sensors, shared_inputs
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
        b'time_s,p_kPa\n0,"1,5"\n"0,1","2,5"\n"0,3","3,5"\n',
        b"Time (s),p (kPa)\n0,1.5\n.1,2.5\n3e-1,3.5\n",
    ],
    ids=["semicolons, decimal commas, byte-order mark", "UTF-16 tabs", "comments", "milliseconds", "quoted", "spaces"],
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


def test_dates_in_milliseconds_are_told_by_their_size(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000_000 + 10 * k},{k}\n" for k in range(40))
    log, notes = _read(tmp_path, "timestamp,motor_V\n" + rows)
    assert log is not None
    np.testing.assert_allclose(log.times_s, 0.01 * np.arange(40), atol=1e-12)
    assert "gives dates in ms" in notes[1]


@pytest.mark.parametrize(("text", "value"), [("t,u_V\n0,0\n1,0\n", "0"), ("t,u_V\n0,2.5\n1,2.5\n", "2.5")])
def test_an_input_that_never_changes_is_said_to_tell_nothing(tmp_path: Path, text: str, value: str) -> None:
    log, notes = _read(tmp_path, text)
    assert log is not None
    assert log.is_constant(0.3).tolist() == [True]
    assert f"u_V is {value} throughout the clip: how it acts cannot be told from it" in notes[1]


def test_an_input_that_changes_outside_the_clip_alone_is_constant() -> None:
    log = SensorLog(np.array([0.0, 1.0, 2.0]), np.array([[1.0, 0], [1.0, 1.0], [4.0, 1.0]]), ("a_V", "b_V"), ("V", "V"))
    assert log.is_constant(1.0).tolist() == [True, False]
    assert log.is_constant(2.0).tolist() == [False, False]


def test_measured_columns_are_no_inputs(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time_s,torque_Nm,motor_V,angle_deg\n0,1,5,10\n1,2,6,20\n")
    log, notes = read_sensors(file, AUTO, "linear", 0.0, 1.0, ("motor_V", "angle_deg"))
    assert log is not None
    assert log.names == ("torque_Nm",)
    assert notes[0] == "Inputs from log.csv: torque_Nm."
    measured, notes = read_measurements(file, ("angle_deg", "motor_V"), 0.0, 1.0)
    assert measured.names == ("angle_deg", "motor_V")
    np.testing.assert_array_equal(measured.values, [[10, 5], [20, 6]])
    assert notes == ["Measurements from log.csv: angle_deg, motor_V."]


def test_a_clip_without_a_log_counts_as_not_driven() -> None:
    log = SensorLog(np.arange(2.0), np.zeros((2, 2)), ("a_V", "b_V"), ("V", "V"))
    assert shared_inputs([("one.mp4", None), ("two.mp4", None)]) == ((), [])
    names, notes = shared_inputs([("one.mp4", None), ("two.mp4", log)])
    assert names == ("a_V", "b_V")
    assert notes == ["No sensor log for one.mp4: a_V, b_V counts as zero there."]
    turned = log.picked(("b_V", "a_V"))
    assert shared_inputs([("one.mp4", log), ("two.mp4", turned)]) == (("a_V", "b_V"), [])


def test_measurements_reach_the_prepared_clip(tmp_path: Path) -> None:
    times_s = np.arange(20) * 0.04
    file = write_video(tmp_path / "arm.mp4", swinging_disc(times_s), times_s)
    (tmp_path / "arm.csv").write_text("time_s,torque_Nm,angle_deg\n0,0,5\n1,1,15\n")
    settings = VideoSettings(start=0.2, measurement_columns=("angle_deg",))
    (clip,) = prepare_clips(file, settings, quiet=True)
    assert clip.sensors is not None
    assert clip.sensors.names == ("torque_Nm",)
    assert clip.measurements is not None
    np.testing.assert_allclose(clip.measurements.at(clip.times_s)[:, 0], 7 + 10 * clip.times_s, atol=1e-9)
