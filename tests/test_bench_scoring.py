"""The scorer: nothing to find fault with in the truth itself, and the stated size for stated faults."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from rich.console import Console

from lagsplat_ns.bench import laws, run, tables
from lagsplat_ns.bench.baselines import PredictorSimulator
from lagsplat_ns.bench.following import BodyPoints
from lagsplat_ns.bench.oscillator import LinearOscillator, fit_oscillator
from lagsplat_ns.bench.run import Run, run_one
from lagsplat_ns.bench.scoring import Score, _flow, _forecast, _modes, _pushes, score
from lagsplat_ns.bench.spectrum import damped_tones, linearized_modes, matched_errors
from lagsplat_ns.bench.targets import COLUMNS, is_met
from lagsplat_ns.bench.training import TrainingError
from lagsplat_ns.bench.truth import TrueMode, TruePush, Truth
from lagsplat_ns.bench.variants import VARIANTS
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.evaluation import Point
from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import FakeScene, Friction, Gravity, filming_camera

GAIN = 1.7
STRENGTH, DAMPING = 9.0, 0.6
HORIZONS = (1, 2)


def simulator(strength: float = STRENGTH, damping: float = DAMPING) -> Simulator:
    torch.manual_seed(0)
    scene = FakeScene(damping=DAMPING)
    scene.mechanism.potential, scene.mechanism.damping = Gravity(strength), Friction(damping)
    return Simulator(scene, filming_camera())


def rod_points(sim: Simulator, angle: float) -> np.ndarray:
    radii = torch.tensor([0.4, 0.6, 0.9], dtype=torch.float64)
    points = torch.stack([radii * math.sin(angle), 0 * radii, 0.55 - radii * math.cos(angle)], -1)
    return sim.filming_camera.project(points).numpy()


@pytest.fixture(scope="module")
def truth() -> Truth:
    """What the fake scene itself does, with forces `GAIN` times as strong as a simulator believes."""
    sim = simulator()
    times = np.arange(0, round(4.1 * 30)) / 30
    angles, rates, energy = [], [], []
    for time_s in times:
        sim.seek(float(time_s))
        angles.append(float(sim.state.q))
        rates.append(float(sim.state.qd))
        energy.append(sim.energy())
    sim.rest()
    rest, moments = rod_points(sim, 0.0), np.arange(0, round(2.2 * 30)) / 30
    pushes = []
    for index, force, last in ((2, (1.5, 0.2), 9), (1, (-1.8, 0.5), 12)):
        pixel = (float(rest[index, 0]), float(rest[index, 1]))
        sim.rest()
        grip, paths = sim.grab(pixel), []
        for k in range(len(moments)):
            paths.append(rod_points(sim, float(sim.state.q)))
            pulls = [(grip, (GAIN * force[0], GAIN * force[1]))] if 3 <= k < last else []
            sim.step(1 / 30, forces=pulls)
        pushes.append(TruePush("p", pixel, force, force, 3 / 30, last / 30, moments, np.stack(paths), index))
    frequency = math.sqrt(STRENGTH - DAMPING**2 / 4) / (2 * math.pi)
    return Truth(
        scene="fake",
        kind="rigid autonomous",
        seed=0,
        parameters={},
        size=(64, 48),
        frames_per_second=30,
        clip_seconds=2.0,
        unit_m=1.0,
        mass_kg=1.0,
        num_joints=1,
        rests_anywhere=False,
        point_names=("upper", "lower", "tip"),
        modes=(TrueMode(frequency, DAMPING / 2, 1.0),),
        input_names=(),
        times_s=times,
        qpos=np.array(angles)[:, None],
        qvel=np.array(rates)[:, None],
        points=np.stack([rod_points(sim, a) for a in angles]),
        energy=np.array(energy),
        rest_points=rest,
        input_times_s=np.zeros(0),
        inputs=np.zeros((0, 0)),
        inertia=np.ones(60),
        background=np.array([[5.5, 5.5], [60.5, 40.5], [5.5, 40.5]]),
        pushes=tuple(pushes),
    )


def test_the_truth_itself_has_no_fault(truth: Truth) -> None:
    result = score(simulator(), truth, horizons_s=HORIZONS, energy_seconds=300.0)
    assert result.failures == {}
    f = result.figures
    assert f["push_gain"] == pytest.approx(GAIN, rel=1e-3)
    for name in ("forecast_1s", "forecast_2s_worst", "push_error_worst", "response_ratio_error"):
        assert f[name] < 2e-3, name
    assert f["flow_error"] < 2e-3
    assert f["direction_degrees_worst"] < 0.1
    assert f["frequency_error"] < 1e-6
    assert f["decay_error"] < 1e-6
    assert f["mass_profile_error"] < 1e-3
    assert f["energy_course_error"] < 5e-4
    assert f["ring_frequency_error"] < 1e-3
    assert f["superposition_error"] < 1e-6
    assert f["background_leakage"] == 0.0
    assert f["missed_clicks"] == 0.0
    assert f["energy_check"] == 1.0
    assert f["energy_rise"] <= 1e-9


def test_a_wrong_spring_shows_in_frequency_and_forecast(truth: Truth) -> None:
    sim, result = simulator(strength=1.1**2 * STRENGTH), Score()
    for part in (_flow, _modes):
        part(sim, truth, result)
    _forecast(sim, truth, result, HORIZONS)
    assert result.figures["frequency_error"] == pytest.approx(0.1, rel=0.02)
    assert result.figures["forecast_2s"] > 0.1
    assert result.figures["flow_error"] < 2e-3  # the clip itself is still right


def test_wrong_damping_shows_in_the_decay_rate(truth: Truth) -> None:
    frequencies, decays = matched_errors(laws.modes(simulator(damping=1.5 * DAMPING), truth), truth.excited_modes)
    slowed = math.sqrt((STRENGTH - 1.5**2 * DAMPING**2 / 4) / (STRENGTH - DAMPING**2 / 4))
    assert decays == pytest.approx([0.5], abs=1e-6)
    assert frequencies == pytest.approx([1 - slowed], rel=1e-4)


def test_energy_that_rises_is_found(truth: Truth) -> None:
    check = laws.long_run(simulator(damping=-0.05), truth, 0.01, seconds=20.0)
    assert check.largest_rise > 1e-3
    assert not check.is_passed


def test_one_failing_part_leaves_the_others() -> None:
    def fails() -> None:
        raise ArithmeticError("no grip")

    result = Score()
    result.attempt("background", fails)
    result.attempt("forecast", lambda: result.put("forecast_5s", 0.01))
    result.attempt("flow", lambda: result.put("flow_error", float("nan")))
    assert result.figures == {"forecast_5s": 0.01}
    assert result.failures == {"background": "ArithmeticError: no grip", "flow_error": "not a finite number: nan"}


def test_things_that_know_nothing_of_each_other_get_a_gain_each(truth: Truth) -> None:
    """One of two things is half as heavy as the picture says: no error, once each has a gain of its own."""
    assert truth.mover(truth.pushes[0]) == 0
    apart = dataclasses.replace(truth, point_movers=(0, 0, 1))
    assert [apart.mover(push) for push in truth.pushes] == [1, 0]
    doubled = dataclasses.replace(truth.pushes[0], force=(0.75, 0.1))
    four = dataclasses.replace(apart, pushes=(doubled, truth.pushes[1], doubled, truth.pushes[1]))
    result = Score()
    _pushes(simulator(), four, result, 1)
    assert result.details["push_gains"] == pytest.approx([GAIN, 2 * GAIN], rel=1e-3)
    assert result.figures["push_error_worst"] < 2e-3


def test_many_points_are_followed_as_one_is() -> None:
    sim = simulator()
    sim.seek(0.0)
    pixels = rod_points(sim, float(sim.state.q))
    points, singles = BodyPoints(sim, pixels), [Point(sim, (float(x), float(y))) for x, y in pixels]
    sim.seek(0.7)
    together = points.paths(sim.state.q[None])[0]
    assert together == pytest.approx(np.stack([single.now().numpy() for single in singles]), abs=1e-4)
    velocity = points.velocities([sim.state])[0]
    ahead, behind = (points.paths(sim.state.q[None] + s * 1e-3 * sim.state.qd)[0] for s in (1, -1))
    assert velocity == pytest.approx((ahead - behind) / 2e-3, abs=1e-3)


# ---- frequencies
def test_damped_tones_are_read_off_a_ring_down() -> None:
    t = np.arange(150) / 30
    first = np.exp(-0.21 * t) * np.cos(2 * math.pi * 0.8 * t + 0.3)
    second = np.exp(-0.6 * t) * np.sin(2 * math.pi * 2.3 * t)
    signals = np.stack([3.0 + first + 0.2 * second, -0.5 * first + 0.4 * second], axis=1)
    tones = damped_tones(signals, 1 / 30, 2)
    assert [tone[0] for tone in tones] == pytest.approx([0.8, 2.3], rel=1e-6)
    assert [tone[1] for tone in tones] == pytest.approx([0.21, 0.6], rel=1e-5)


def test_a_known_matrix_has_its_eigenvalues() -> None:
    stiffness = np.array([[30.0, -4.0], [-4.0, 90.0]])
    modes = linearized_modes(lambda q, qd: -stiffness @ (q - 0.3) - 0.4 * qd, np.full(2, 0.3))
    rates = np.sqrt(np.linalg.eigvalsh(stiffness) - 0.04)
    assert [f for f, _ in modes] == pytest.approx(rates / (2 * math.pi), rel=1e-8)
    assert [c for _, c in modes] == pytest.approx([0.2, 0.2], rel=1e-8)


def test_modes_are_matched_by_frequency_and_a_missing_one_is_an_error_of_one() -> None:
    true = [TrueMode(2.0, 0.1, 0.7), TrueMode(0.5, 0.2, 0.3)]
    frequencies, decays = matched_errors([(0.51, 0.2), (2.2, 0.15)], true)
    assert frequencies == pytest.approx([0.1, 0.02])
    assert decays == pytest.approx([0.5, 0.0])
    assert matched_errors([(2.0, 0.1)], true) == ([0.0, 1.0], [0.0, 1.0])


# ---- baselines
def test_the_oscillator_finds_the_numbers_of_a_linear_system() -> None:
    stiffness, damping = np.array([[20.0, 3.0], [-1.0, 60.0]]), np.array([[0.3, 0.0], [0.1, 0.5]])
    known = LinearOscillator(np.array([1.0, -2.0]), np.zeros(2), stiffness, damping, np.zeros((2, 0)))
    sim = PredictorSimulator(Simulator(FakeScene("mass"), filming_camera()), known)
    sim.state.q[:], sim.state.qd[:] = torch.tensor([1.5, -1.8]).double(), torch.tensor([0.0, 1.0]).double()
    rows = []
    for _ in range(120):
        rows.append(sim.state.q.clone())
        sim.step(1 / 30)
    observed = ObservedPath(torch.arange(120, dtype=torch.float64) / 30, torch.stack(rows))
    found = fit_oscillator(observed)
    q, qd, u = torch.tensor([1.2, -2.4]).double(), torch.tensor([-0.3, 0.6]).double(), torch.zeros(0).double()
    assert found.acceleration(q, qd, u) == pytest.approx(known.acceleration(q, qd, u), rel=1e-3)


def test_what_never_moves_is_scored_as_standing_still(truth: Truth) -> None:
    result = score(PredictorSimulator(simulator(), None), truth, has_mechanism=False, moves=False, horizons_s=HORIZONS)
    assert result.failures == {}
    assert result.figures["push_gain"] == 1.0
    assert 0.2 < result.figures["forecast_2s"] < 1.0
    assert 0.2 < result.figures["push_error"] < 1.0


def test_a_runaway_predictor_is_called_lost(truth: Truth) -> None:
    away = LinearOscillator(np.zeros(1), np.zeros(1), -np.eye(1), np.zeros((1, 1)), np.zeros((1, 0)))
    check = laws.long_run(PredictorSimulator(simulator(), away), truth, 1.0, has_energy=False)
    assert not check.is_finite
    assert not check.is_passed


# ---- runs and tables
def test_a_failed_run_is_told_and_tried_again_and_a_finished_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, calls = Run("pendulum", 0), []

    def fails(*_: object) -> None:
        calls.append("failed")
        raise TrainingError("ns-train ended with code 1")

    def works(result: dict, *_: object) -> None:
        calls.append("worked")
        result["figures"]["forecast_5s"] = 0.001

    quiet = Console(file=io.StringIO())
    monkeypatch.setattr(run, "_fill", fails)
    assert run_one(one, tmp_path, quiet)["error"] == "TrainingError: ns-train ended with code 1"
    assert "TrainingError" in (one.folder(tmp_path) / "error.txt").read_text()
    monkeypatch.setattr(run, "_fill", works)
    assert run_one(one, tmp_path, quiet)["figures"] == {"forecast_5s": 0.001}
    assert run_one(one, tmp_path, quiet)["figures"] == {"forecast_5s": 0.001}
    assert calls == ["failed", "worked"]


def test_summary_counts_targets_by_degrees_of_freedom() -> None:
    figures = {"forecast_5s": 0.005, "push_error": 0.05, "push_error_worst": 0.3, "frequency_error": 0.001}
    figures |= {"background_leakage": 0.0, "superposition_error": 1e-9, "energy_check": 1.0, "training_seconds": 50.0}
    one = {"scene": "a", "seed": 0, "variant": "default", "kind": "k", "num_joints": 1, "figures": figures}
    many = {**one, "scene": "b", "num_joints": 2}
    facts = tables.summary([one, many])
    assert [(m["scene"], m["figure"]) for m in facts["targets_missed"]] == [
        ("a", "forecast_5s"),
        ("a", "push_error"),
        ("a", "push_error_worst"),
        ("b", "push_error_worst"),
    ]
    assert facts["targets_met"] == 2 * 8 - 4
    assert facts["medians"]["forecast_5s"] == 0.005


def test_tables_show_what_was_missed_and_what_failed() -> None:
    good = {"scene": "a", "seed": 0, "variant": "default", "kind": "k", "num_joints": 1}
    good["figures"] = {"forecast_5s": 0.0021, "energy_check": 0.0}
    good["baselines"] = {
        "neural ODE": {"figures": {"forecast_5s": 0.31, "push_error": 2.0, "bounded": 0.0, "energy_check": 0.0}}
    }
    bad = {"scene": "b", "seed": 1, "variant": "default", "figures": {}, "error": "TrainingError: code 1"}
    console = Console(width=150, record=True, file=io.StringIO())
    baselines = tables.baseline_table([good, bad])
    assert baselines is not None
    for table in (
        tables.result_table([good, bad]),
        baselines,
        tables.class_table([good]),
        tables.ablation_table([good, bad]),
    ):
        console.print(table)
    text = console.export_text()
    for piece in ("0.21%", "FAIL", "failed", "31% | 200% | lost", "target, 1 dof"):
        assert piece in text, piece


def test_a_figure_that_is_missing_does_not_meet_its_target() -> None:
    forecast = next(column for column in COLUMNS if column.name == "forecast_5s")
    assert is_met(forecast, 0.003, 1) is True
    assert is_met(forecast, 0.0031, 1) is False
    assert is_met(forecast, 0.0031, 2) is True
    assert is_met(forecast, None, 1) is False
    flow = next(column for column in COLUMNS if column.name == "flow_error")
    assert is_met(flow, 9.0, 1) is None


def test_every_variant_chooses_what_the_model_offers() -> None:
    from lagsplat_ns.methods.lagsplat import LagSplatModelConfig

    offered = get_type_hints(LagSplatModelConfig)
    for options in VARIANTS.values():
        for option, value in zip(options[::2], options[1::2], strict=True):
            name = option.removeprefix("--pipeline.model.").replace("-", "_")
            assert value in get_args(offered[name]) and value != getattr(LagSplatModelConfig(), name)


def test_summaries_are_json(truth: Truth) -> None:
    result = {"scene": "a", "seed": 0, "variant": "default", "kind": "k", "num_joints": 1, "figures": {}}
    assert json.loads(json.dumps(tables.summary([result])))["runs"] == 1
