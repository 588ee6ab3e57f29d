"""Dynamics from tables of states: what is read, which coordinates it becomes, and that forecasts beat what is naive."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lagsplat_ns.cli.main import main
from lagsplat_ns.data.errors import DataError, MissingDataError
from lagsplat_ns.data.series import Series, SeriesColumns, read_series
from lagsplat_ns.data.series_coordinates import coordinates_of
from lagsplat_ns.dynamics.forecasts import in_pieces, starts_between
from lagsplat_ns.dynamics.observed import ObservedPath


def swing(times: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """theta'' = -20 sin theta - 0.2 theta' + 3 u by small steps, u linear between rows."""
    h = 1e-3
    theta, rate, path = 0.7, 0.0, []
    fine = np.arange(0, times[-1] + h, h)
    drive = 3 * np.interp(fine + h / 2, times, torque)
    for u in drive:
        path.append(theta)
        rate += h / 2 * (-20 * math.sin(theta) - 0.2 * rate + u)
        theta += h * rate
        rate += h / 2 * (-20 * math.sin(theta) - 0.2 * rate + u)
    return np.interp(times, fine, path)


def write_swing(file: Path) -> Path:
    times = np.arange(500) / 50
    torque = np.sin(2.1 * times) + 0.6 * np.sign(np.sin(3.3 * times))
    theta = swing(times, torque) + 1e-3 * np.random.default_rng(0).standard_normal(500)
    rows = "".join(f"{t:.3f};{q:.6f};{u:.5f}\n".replace(".", ",") for t, q, u in zip(times, theta, torque))
    file.write_text("\ufefftime;angle;torque_Nm\n" + rows, encoding="utf-8")
    return file


def test_a_driven_pendulum_is_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["fit-series", str(write_swing(tmp_path / "swing.csv")), "--no-neural-ode", "--output", str(tmp_path / "out")])
    result = json.loads((tmp_path / "out" / "series.json").read_text())
    errors = {name: error["whole"]["median"] for name, error in result["errors"].items()}
    assert result["coordinates"] == ["angle"]
    assert result["held_out_s"] == pytest.approx(3.0, abs=0.05)
    assert errors["mechanism"] < 0.02
    assert errors["frozen"] > 10 * errors["mechanism"]
    assert errors["linear ODE"] > 2 * errors["mechanism"]
    assert result["errors"]["mechanism"]["2 s"]["starts"] >= 2
    assert (tmp_path / "out" / "series.png").stat().st_size > 5000
    assert "torque_Nm" in capsys.readouterr().out


def rows_of(names: str, count: int = 60) -> str:
    width = len(names.split(","))
    return names + "\n" + "".join(",".join(f"{k / 30 + j:.4f}" for j in range(width)) + "\n" for k in range(count))


def test_columns_are_told_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "arm.csv"
    file.write_text(rows_of("time,pos1,pos2,vel1,vel2,tau1,p_kPa,comment_count"))
    series = read_series(file, SeriesColumns())
    assert series.state_names == ("pos1", "pos2")
    assert series.input_names == ("tau1", "p_kPa")
    assert series.rates is not None
    assert series.rates.shape == (60, 2)
    assert series.notes[-1] == "Left out: comment_count."
    assert read_series(file, SeriesColumns(inputs=("none",))).inputs.shape == (60, 0)


def test_matlab_cells_are_joined_in_time(tmp_path: Path) -> None:
    from scipy.io import savemat

    cell = np.empty((2, 1), dtype=object)
    times = np.empty((2, 1), dtype=object)
    for k in range(2):
        times[k, 0] = (np.arange(30) + 30.0 * k)[:, None] / 100
        cell[k, 0] = np.stack([np.arange(30) + 30.0 * k, np.ones(30)])
    savemat(tmp_path / "arm.mat", {"Time_id": times, "Y_id": cell, "dt": 0.01})
    series = read_series(tmp_path / "arm.mat", SeriesColumns(states=("Y_1",)))
    np.testing.assert_allclose(series.states[:, 0], np.arange(60))
    np.testing.assert_allclose(series.times_s, np.arange(60) / 100)


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("time,pos\n", SeriesColumns(), "but .* has only its first line"),
        (rows_of("pos,tau"), SeriesColumns(), "must have a time column, but .* has pos, tau.\n.*--rate-hz 30"),
        (rows_of("pos,tau"), SeriesColumns(rate_hz=-1.0), "`--rate-hz` must be positive, but is -1"),
        (rows_of("time,foo,bar"), SeriesColumns(), "none of the columns .* named like one .*\n.*--state-columns"),
        (rows_of("time,pos"), SeriesColumns(states=("poss",)), "it has no poss.\n  It has: time, pos"),
        (rows_of("time,pos1,pos2,vel"), SeriesColumns(rates=("vel",)), "there are 1 rates and 2 states"),
        (rows_of("time,pos") + "0.1,1\n", SeriesColumns(), "`time` must increase, but row 62"),
    ],
)
def test_tables_that_are_no_series(tmp_path: Path, text: str, columns: SeriesColumns, words: str) -> None:
    file = tmp_path / "series.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        read_series(file, columns)


def test_no_file_and_no_matlab_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="there is no file at"):
        read_series(tmp_path / "no.csv", SeriesColumns())
    (tmp_path / "no.mat").write_bytes(b"MATLAB 7.3 MAT-file")
    with pytest.raises(DataError, match=r"must be readable by scipy\.io\.loadmat"):
        read_series(tmp_path / "no.mat", SeriesColumns())


def series_of(states: np.ndarray) -> Series:
    names = tuple(f"s{k}" for k in range(states.shape[1]))
    return Series(Path("s.csv"), np.arange(len(states)) / 50, states, None, np.zeros((len(states), 0)), names, ())


def test_points_of_a_chain_become_its_angles() -> None:
    times = np.arange(200) / 50
    one, two = 0.4 * np.sin(3 * times) - 1.5, 4 * times
    x1, y1 = 30 + 7 * np.cos(one), 20 + 7 * np.sin(one)
    states = np.column_stack([x1, y1, x1 + 5 * np.cos(two), y1 + 5 * np.sin(two)])
    found = coordinates_of(series_of(states), 150, angles="none", is_points=True, latent_dim=None)
    assert found.is_chain
    np.testing.assert_allclose(found.q[:, 0], one, atol=1e-9)
    np.testing.assert_allclose(found.q[:, 1], two, atol=1e-9)
    with pytest.raises(DataError, match="must be pairs of x and y, but there are 3"):
        coordinates_of(series_of(states[:, :3]), 150, angles="none", is_points=True, latent_dim=None)


def test_relative_angles_add_up_and_many_states_must_be_reduced() -> None:
    states = np.random.default_rng(0).standard_normal((100, 3)).cumsum(0) * 0.01
    found = coordinates_of(series_of(states), 80, angles="relative", is_points=False, latent_dim=None)
    np.testing.assert_allclose(found.q, states.cumsum(axis=1), atol=1e-12)
    flat = np.outer(np.sin(np.arange(100) / 9), np.arange(1.0, 7.0))
    with pytest.raises(DataError, match=r"at most 4 coordinates, but there are 6 .*\n.*--latent-dim 2"):
        coordinates_of(series_of(flat), 80, angles="none", is_points=False, latent_dim=None)
    found = coordinates_of(series_of(flat), 80, angles="none", is_points=False, latent_dim=1)
    assert abs(np.corrcoef(found.q[:, 0], flat[:, 0])[0, 1]) == pytest.approx(1.0, abs=1e-9)
    assert "100.00% of their variance" in found.note


def test_pieces_and_starts() -> None:
    times = torch.arange(600, dtype=torch.float64) / 50
    path = ObservedPath(times, torch.sin(2 * math.pi * times)[:, None], None, 450)
    pieces = in_pieces(path, 3.0)
    assert len(pieces) == 3
    assert sum(len(piece.times_s) for piece in pieces) == 600
    assert pieces[-1].fitted_frames == 150
    assert starts_between(0.0, 3.0, 5.0, 8) == []
    assert starts_between(0.0, 5.0, 5.0, 8) == [0.0]
    assert starts_between(0.0, 15.0, 5.0, 8)[-1] == 10.0


def test_rows_before_a_start_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "arm.csv"
    file.write_text(rows_of("time,pos", 90))
    series = read_series(file, SeriesColumns()).after(1.0)
    assert series.times_s[0] == 0.0
    assert len(series.times_s) == 60
    assert series.states[0, 0] == pytest.approx(2.0, abs=1e-3)
    with pytest.raises(DataError, match=r"but .* has 30 after 2 s\.\n  Give an earlier --start-s"):
        read_series(file, SeriesColumns()).after(2.0)
