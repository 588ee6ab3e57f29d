"""The scorer itself: perfect for the truth, and the stated size for stated faults."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lagsplat_ns.evaluation import Point, answer, evaluate_forecast, evaluate_pushes, path_error
from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import FakeScene, filming_camera


@pytest.fixture
def sim() -> Simulator:
    return Simulator(FakeScene(), filming_camera())


def tip_path(sim: Simulator, angles: torch.Tensor) -> np.ndarray:
    """Pixels of the point 0.9 units below the pivot, turned by angles."""
    points = torch.stack([0.9 * torch.sin(angles), torch.zeros_like(angles), 0.55 - 0.9 * torch.cos(angles)], -1)
    return sim.filming_camera.project(points.double()).numpy()


def test_path_error_of_a_shift_is_the_shift_over_the_range() -> None:
    true = np.stack([np.linspace(0, 10, 11), np.zeros(11)], -1)
    assert path_error(true + np.array([0.0, 0.5]), true) == pytest.approx(0.05)
    assert path_error(true, true) == 0.0


def test_a_point_is_followed_as_part_of_the_body(sim: Simulator) -> None:
    sim.seek(0.0)
    x, y = tip_path(sim, sim.state.q)[0]
    point = Point(sim, (float(x), float(y)))
    for time in (0.4, 1.1, 3.0):
        sim.seek(time)
        assert np.abs(point.now().numpy() - tip_path(sim, sim.state.q)[0]).max() < 1e-3


def test_a_perfect_forecast_has_no_error(sim: Simulator) -> None:
    reference = Simulator(sim.scene, sim.filming_camera)

    def truth(times: np.ndarray) -> np.ndarray:
        rows = []
        for time in times:
            reference.seek(float(time))
            rows.append(tip_path(reference, reference.state.q)[0])
        return np.stack(rows)

    forecast = evaluate_forecast(sim, truth, seconds=1.0, frames_per_second=10.0)
    assert forecast.error < 1e-4
    assert forecast.frozen_error > 0.2
    sim.edit(damping=20.0)
    assert evaluate_forecast(sim, truth, seconds=1.0, frames_per_second=10.0).error > 0.05


@dataclass
class Known:
    """A push whose true answer is another simulator's answer to `gain` times the force."""

    truth: Simulator
    pixel: tuple[float, float]
    force: tuple[float, float]
    start_s: float
    end_s: float
    gain: float
    watch: tuple[float, float]

    def response(self, times_s: np.ndarray) -> np.ndarray:
        return answer(self.truth, self, self.watch, times_s, self.gain)


def test_the_gain_is_found_and_then_every_push_is_right(sim: Simulator) -> None:
    reference = Simulator(sim.scene, sim.filming_camera)
    sim.rest()
    x, y = tip_path(sim, sim.state.q)[0]
    tip = (float(x), float(y))
    pushes = [
        Known(reference, tip, (2.0, 0.0), 0.1, 0.3, 1.7, tip),
        Known(reference, (tip[0], tip[1] - 3.0), (-1.5, 0.5), 0.15, 0.35, 1.7, tip),
    ]
    answers = evaluate_pushes(sim, pushes, tip, seconds=1.0, frames_per_second=10.0)
    assert answers.gain == pytest.approx(1.7, rel=1e-3)
    assert max(answers.errors) < 1e-3
    assert answers.median_unseen_error == answers.errors[1]
