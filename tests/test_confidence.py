"""What a report says about how far to trust a training: inputs, measurements, ranges, scales of force."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from lagsplat_ns.data.sensors import SensorLog
from lagsplat_ns.dynamics.logged_inputs import LoggedInputs
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.options import IdentifyOptions
from lagsplat_ns.dynamics.shooting import identify
from lagsplat_ns.training.confidence import ClipForecast, CoordinateRange, InputEffect, _effect_spread
from lagsplat_ns.training.measurements import Frames, check_measurements
from lagsplat_ns.training.report import Confidence, FitReport, print_report, write_report

RATE = 3.0


def driven(amplitude: float, noise: float) -> tuple[ObservedPath, LoggedInputs]:
    """q'' = -RATE^2 q - 0.1 q' + 2 u from 0.5, with noise; u a slow wave."""
    h, count = 1e-3, 150
    times = torch.arange(count, dtype=torch.float64) / 30
    log_times = torch.arange(0, 6, 0.01, dtype=torch.float64)
    log = LoggedInputs(log_times, amplitude * torch.sin(1.9 * log_times)[:, None])
    q, v, path = 0.5, 0.0, []
    fine = np.arange(0, 5.0, h)
    for u in amplitude * np.sin(1.9 * (fine + h / 2)):
        path.append(q)
        v += h / 2 * (-(RATE**2) * q - 0.1 * v + 2 * u)
        q += h * v
        v += h / 2 * (-(RATE**2) * q - 0.1 * v + 2 * u)
    clean = torch.from_numpy(np.interp(times.numpy(), fine, path))
    torch.manual_seed(0)
    return ObservedPath(times, (clean + noise * torch.randn(count, dtype=torch.float64))[:, None], log), log


def test_the_uncertainty_of_an_input_is_that_of_its_fits() -> None:
    """Known to a per mille where the input is strong, hardly at all where it drowns; the error is of that size."""
    relative = []
    for amplitude in (1.0, 2e-3):
        path, _ = driven(amplitude, 2e-3)
        options = IdentifyOptions(find_disturbed=False, select_damping=False)
        identified = identify([path], ConstantMetric(torch.eye(1, dtype=torch.float64)), options, 1)
        effect = float(identified.mechanism.inputs.weights[0, 0, 0])
        spread = float(_effect_spread(identified, 1, 1)[0])
        assert abs(effect - 2.0) < 5 * spread + 0.01
        relative.append(spread / 2.0)
    assert relative[0] < 0.01
    assert relative[1] > 30 * relative[0]


def frames(begin_s: float, end_s: float) -> Frames:
    times = np.arange(begin_s, end_s, 1 / 30)
    q = np.stack([np.sin(2 * times), np.cos(3.1 * times)], axis=1)
    return Frames(times, q, np.gradient(q, times, axis=0))


def logged(values: np.ndarray, times: np.ndarray, name: str) -> SensorLog:
    return SensorLog(times, values[:, None], (name,), ("",))


def test_measurements_are_functions_of_the_coordinates() -> None:
    times = np.arange(0, 6, 0.01)
    a, b = np.sin(2 * times), np.cos(3.1 * times)
    noise = np.random.default_rng(0).standard_normal(len(times))
    expected = {
        "affine in q": 3 * a - b + 2,
        "quadratic in q": a + a * b - 0.5 * b**2,
        "affine in q and q'": 2 * np.cos(2 * times) + 0.3 * b,
    }
    train, seen = frames(0.0, 4.0), frames(4.0, 5.0)
    off = Frames(seen.times_s, seen.q + 0.05, seen.qd)
    for form, values in expected.items():
        (check,) = check_measurements([logged(values, times, "m")], [train], [seen], [off])
        assert check.form == form
        assert check.error is not None
        assert check.forecast_error is not None
        assert check.error < 0.02
        assert check.forecast_error > check.error
        assert check.correlation == pytest.approx(1.0, abs=1e-3)
    (check,) = check_measurements([logged(noise, times, "m")], [train], [seen], [None])
    assert check.train_error > 0.1
    assert check.forecast_error is None
    (row,) = Confidence(measurements=[check]).rows()
    assert "the coordinates do not explain it" in row[1]


def test_the_summary_says_what_to_trust(tmp_path: Path) -> None:
    confidence = Confidence(
        forecasts=[ClipForecast("a.mp4", 1.0, 0.01, 0.5, 0.6), ClipForecast("b.mp4", 0.8, 0.02, 0.5, 0.6)],
        coordinates=[CoordinateRange(-1.0, 2.0, 4.0, 31.0, True), CoordinateRange(0.0, 0.01, 0.1, 0.2, False)],
        inputs=[
            InputEffect("torque_Nm", "Nm", -1.0, 1.0, 0.3, 0.002, True),
            InputEffect("fan_V", "V", 0.0, 0.0, 0.0, None, False),
            InputEffect("pump_kPa", "kPa", 0.0, 0.1, 1e-4, 0.9, False),
        ],
    )
    rows = dict(confidence.rows())
    assert rows["forecast error, b.mp4"] == "2 % over 0.8 s"
    assert rows["seen of coordinate 1"] == "q from -1 to 2, 31.0 px in the picture"
    assert "hardly excited" in rows["seen of coordinate 2"]
    assert rows["input torque_Nm"] == "-1 to 1, force 0.3 of the others, effect known to 0.2 %"
    assert rows["input fan_V"] == "always 0: how it acts cannot be told from these clips"
    assert rows["input pump_kPa"].endswith("not exciting enough to be identified")
    assert "is_outside_seen" in rows["beyond that range"]
    report = FitReport(
        2, 1, 10, 30.0, 25.0, 0.01, 0.5, 0.6, 1.0, None, [], {"embed": 1.0}, confidence=confidence, force_unit="N"
    )  # fmt: skip
    console = Console(record=True, width=150)
    print_report(report, console)
    text = console.export_text()
    assert "unit of pushes" in text
    assert "hardly excited" in text
    write_report(report, tmp_path / "report.json")
    assert '"clip": "b.mp4"' in (tmp_path / "report.json").read_text()
    assert not math.isnan(report.psnr)
