"""A simulator against the truth of its clip: every figure of the benchmark, each surviving the failure of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from lagsplat_ns.bench import laws
from lagsplat_ns.bench.following import BodyPoints, after_clip, answer_states, put_at_rest
from lagsplat_ns.bench.spectrum import damped_tones, matched_errors
from lagsplat_ns.bench.truth import TrueMode, TruePush, Truth
from lagsplat_ns.evaluation import path_error
from lagsplat_ns.simulator import Simulator

__all__ = ["Score", "score"]

FRAMES_PER_SECOND = 30
STILL_SHARE = 0.05  # points that move less than this part of the farthest are not asked for their path


@dataclass
class Score:
    """Figures by name, what kept others from being found, and the series that plots show.

    Errors are shares (0.01 is one percent), directions degrees, times seconds.
    """

    figures: dict[str, float] = field(default_factory=dict)
    details: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    series: dict[str, np.ndarray] = field(default_factory=dict)

    def attempt(self, name: str, part: Callable[[], None]) -> None:
        """Runs one part; an error is kept under its name instead of ending the others."""
        try:
            part()
        except (ValueError, ArithmeticError, RuntimeError, AssertionError, IndexError, AttributeError) as error:
            self.failures[name] = f"{type(error).__name__}: {error}"

    def put(self, name: str, value: float) -> None:
        """Keeps a figure if it is a number, and says so if it is not."""
        if math.isfinite(value):
            self.figures[name] = float(value)
        else:
            self.failures[name] = f"not a finite number: {value}"


def score(
    sim: Simulator,
    truth: Truth,
    *,
    has_mechanism: bool = True,
    moves: bool = True,
    horizons_s: tuple[int, ...] = (2, 5),
    energy_seconds: float = 1000.0,
) -> Score:
    """All figures of one simulator.

    Without a mechanism, those about energy, mass and modes are left out; what never moves is not asked to add forces.
    horizons_s: how far forecasts go, each a figure of its own; answers to pushes are compared over the last.
    """
    result = Score()
    result.attempt("forecast", lambda: _forecast(sim, truth, result, horizons_s))
    result.attempt("pushes", lambda: _pushes(sim, truth, result, horizons_s[-1]))
    result.attempt("flow", lambda: _flow(sim, truth, result))
    result.attempt("background", lambda: result.put("background_leakage", laws.background_leakage(sim, truth)))
    if moves:
        result.attempt("superposition", lambda: result.put("superposition_error", laws.superposition_error(sim, truth)))
    if has_mechanism:
        result.attempt("modes", lambda: _modes(sim, truth, result))
        result.attempt("energy_course", lambda: _energy_course(sim, truth, result))
        if len(truth.inertia):
            result.attempt("mass", lambda: result.put("mass_profile_error", laws.mass_profile_error(sim, truth)))
    if moves:
        result.attempt("energy", lambda: _energy(sim, truth, result, energy_seconds, has_mechanism))
    return result


# ---- forecast
def _forecast(sim: Simulator, truth: Truth, result: Score, horizons_s: tuple[int, ...]) -> None:
    sim.seek(0.0)
    points = BodyPoints(sim, truth.paths(np.zeros(1))[0])
    times, q = after_clip(sim, truth, float(horizons_s[-1]))
    simulated, true = points.paths(q), truth.paths(times)
    result.series.update(forecast_times_s=times, forecast_true=true, forecast_simulated=simulated)
    for seconds in horizons_s:
        kept = slice(0, seconds * FRAMES_PER_SECOND)
        errors = _point_errors(simulated[kept], true[kept])
        result.details[f"forecast_errors_{seconds}s"] = errors
        result.put(f"forecast_{seconds}s", float(np.median(errors)))
        result.put(f"forecast_{seconds}s_worst", max(errors))


def _point_errors(simulated: Float64[np.ndarray, "T P 2"], true: Float64[np.ndarray, "T P 2"]) -> list[float]:
    """Path error of every point that moves, over its own range."""
    reach = np.linalg.norm(true - true[:1], axis=-1).max(0)
    moving = np.flatnonzero(reach > STILL_SHARE * reach.max())
    return [path_error(simulated[:, k], true[:, k]) for k in moving]


# ---- pushes
def _pushes(sim: Simulator, truth: Truth, result: Score, seconds: int) -> None:
    grid = np.arange(1, seconds * FRAMES_PER_SECOND + 1) / FRAMES_PER_SECOND
    sim.seek(0.0)
    filmed = BodyPoints(sim, truth.paths(np.zeros(1))[0])
    rest = filmed.paths(_rest_states(sim, truth))[0]
    result.put("rest_offset_px", float(np.linalg.norm(rest - truth.rest_points, axis=-1).mean()))
    points = BodyPoints(sim, truth.rest_points)
    rest = points.paths(_rest_states(sim, truth))[0]
    empty = [k for k, push in enumerate(truth.pushes) if sim.grab(push.pixel).is_empty]
    result.put("missed_clicks", len(empty) / len(truth.pushes))
    first = {truth.mover(push): k for k, push in reversed(list(enumerate(truth.pushes)))}
    gains = {mover: _gain(sim, truth, truth.pushes[k], points, grid) for mover, k in first.items()}
    unseen = [k for k in range(len(truth.pushes)) if k not in first.values()]
    result.put("push_gain", gains[truth.mover(truth.pushes[0])])
    result.details["push_gains"] = [gains[mover] for mover in sorted(gains)]
    errors, own, turns, ratios = [], [], [], []
    simulated_paths, true_paths = [], []
    for push in truth.pushes:
        times = np.unique(np.append(grid, push.end_s))
        simulated, true = (
            points.paths(answer_states(sim, truth, push, times, gains[truth.mover(push)])),
            push.responses(times),
        )
        errors.append(float(np.median(_point_errors(simulated, true))))
        own.append(path_error(simulated[:, push.index], true[:, push.index]))
        end = int(np.searchsorted(times, push.end_s - 1e-9))
        moved, should = simulated[end] - rest, true[end] - push.responses(np.zeros(1))[0]
        turns.append(_angle_degrees(moved[push.index], should[push.index]))
        ratios.append(_ratio_error(moved, should, push.index))
        simulated_paths.append(simulated[np.isin(times, grid)])
        true_paths.append(true[np.isin(times, grid)])
    result.series.update(push_times_s=grid, push_true=np.array(true_paths), push_simulated=np.array(simulated_paths))
    result.details.update(push_errors=errors, pushed_point_errors=own, direction_errors=turns, ratio_errors=ratios)
    result.put("push_error", float(np.median([errors[k] for k in unseen])))
    result.put("push_error_worst", max(errors[k] for k in unseen))
    result.put("pushed_point_error", float(np.median([own[k] for k in unseen])))
    result.put("direction_degrees", float(np.median(turns)))
    result.put("direction_degrees_worst", max(turns))
    result.put("response_ratio_error", float(np.median(ratios)))
    _ring_down(truth, truth.pushes[0], result)


def _rest_states(sim: Simulator, truth: Truth) -> torch.Tensor:
    put_at_rest(sim, truth)
    return sim.state.q[None].clone()


def _gain(sim: Simulator, truth: Truth, push: TruePush, points: BodyPoints, times: Float64[np.ndarray, " T"]) -> float:
    """The one scale of all forces that makes a push right, by secant steps on the paths of all points."""
    true, gain = push.responses(times), 1.0
    for _ in range(12):
        here, more = (points.paths(answer_states(sim, truth, push, times, f * gain)) for f in (1.0, 1.01))
        slope = (more - here) / 0.01
        power = float((slope**2).sum())
        if power == 0.0:
            return 1.0  # nothing moves, whatever the force: the errors are those of standing still
        change = float((slope * (true - here)).sum() / power)
        gain *= 1.0 + float(np.clip(change, -0.6, 1.5))
        if abs(change) < 1e-4:
            break
    return gain


def _angle_degrees(a: Float64[np.ndarray, " 2"], b: Float64[np.ndarray, " 2"]) -> float:
    if np.linalg.norm(a) == 0.0:
        return 180.0
    return float(np.degrees(abs(np.arctan2(a[0] * b[1] - a[1] * b[0], a @ b))))


def _ratio_error(moved: Float64[np.ndarray, "P 2"], should: Float64[np.ndarray, "P 2"], index: int) -> float:
    """How wrong the displacements of the other points are over that of the pushed one, over the true ones' size."""
    others = np.arange(len(moved)) != index
    found = np.linalg.norm(moved, axis=-1) / max(float(np.linalg.norm(moved[index])), 1e-9)
    true = np.linalg.norm(should, axis=-1) / np.linalg.norm(should[index])
    size = np.sqrt(np.square(true[others]).mean())
    return float(np.sqrt(np.square(found - true)[others].mean()) / max(size, 0.05))


def _ring_down(truth: Truth, push: TruePush, result: Score) -> None:
    """Frequency and decay of the free motion after the first push, read off both paths in the same way."""
    times = result.series["push_times_s"]
    if truth.rests_anywhere:
        return
    free = times > push.end_s
    count = min(3, max(1, len(truth.excited_modes)))
    tones = []
    for name in ("push_true", "push_simulated"):
        paths = result.series[name][0][free]
        tones.append(damped_tones(paths.reshape(len(paths), -1), 1 / FRAMES_PER_SECOND, count))
    true, found = tones
    if not true:
        return
    modes = [TrueMode(f, rate, 1.0) for f, rate, _ in true]
    frequencies, decays = matched_errors([(f, rate) for f, rate, _ in found], modes)
    result.put("ring_frequency_error", frequencies[0])
    result.put("ring_decay_error", decays[0])


# ---- along the clip
def _flow(sim: Simulator, truth: Truth, result: Score) -> None:
    """Velocities J qd of the Gaussians around the watched points against the true ones, root mean square over all."""
    sim.seek(0.0)
    points = BodyPoints(sim, truth.paths(np.zeros(1))[0])
    times = np.linspace(0.3, min(sim.clip_end_s, truth.clip_seconds) - 0.3, 31)
    states: list[Any] = []
    for time_s in times:
        sim.seek(float(time_s))
        states.append(sim.state)
    difference = points.velocities(states) - truth.velocities(times)
    true = truth.velocities(times)
    result.put("flow_error", float(np.sqrt(np.square(difference).sum() / np.square(true).sum())))
    q = torch.stack([state.q for state in states])
    tracks = _point_errors(points.paths(q), truth.paths(times))
    result.put("track_error", float(np.median(tracks)))


def _modes(sim: Simulator, truth: Truth, result: Score) -> None:
    modes = truth.excited_modes
    found = laws.modes(sim, truth)
    result.details["modes_found"] = [value for pair in found for value in pair]
    frequencies, decays = matched_errors(found, modes)
    result.put("frequency_error", frequencies[0])
    result.put("frequency_error_worst", max(frequencies))
    result.put("decay_error", decays[0])


def _energy_course(sim: Simulator, truth: Truth, result: Score) -> None:
    """The simulator's energy along clip and forecast, relative to the first frame, and the true one."""
    if truth.is_forced:
        return
    times = np.arange(0.0, 2 * truth.clip_seconds, 0.05)
    values = []
    for time_s in times:
        sim.seek(float(time_s))
        values.append(sim.energy())
    true = np.interp(times, truth.times_s, truth.energy)
    result.series.update(energy_times_s=times, energy_simulated=np.array(values), energy_true=true)
    result.put("energy_course_error", float(np.sqrt(np.square(np.array(values) - true).mean()) / true.max()))


def _energy(sim: Simulator, truth: Truth, result: Score, seconds: float, has_mechanism: bool) -> None:
    gain = result.figures.get("push_gain", 1.0)
    check = laws.long_run(sim, truth, gain, seconds=seconds, has_energy=has_mechanism)
    result.put("bounded", float(check.is_finite))
    result.put("motion_gone", float(check.is_gone))
    result.put("long_run_seconds", check.seconds)
    if has_mechanism:
        result.put("energy_rise", check.largest_rise)
    result.put("energy_check", float(check.is_passed))
    result.series.update(long_run_times_s=check.times_s, long_run_size=check.sizes)
