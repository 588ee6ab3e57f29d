"""How newtons come to pushes: from a known push, from a measured force, and from a torque with a length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lagsplat_ns.cli.calibrate import Calibrate, MeasuredPush, fit_gain, read_track
from lagsplat_ns.data.errors import DataError
from lagsplat_ns.evaluation import answer
from lagsplat_ns.simulation.calibration import CALIBRATION_FILE, Calibration, load_calibration, save_calibration
from lagsplat_ns.simulation.input_scale import InputScale, calibration_from
from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import FakeScene, filming_camera

NEWTONS = 2.5  # of one picture unit of force


@pytest.fixture
def sim() -> Simulator:
    torch.manual_seed(0)
    return Simulator(FakeScene(), filming_camera())


def known_push(sim: Simulator, sign: float = 1.0) -> MeasuredPush:
    """A push whose answer is the simulator's own to a force of known newtons."""
    sim.rest()
    x, y = (float(c) for c in sim.filming_camera.project(sim.means().double())[25])
    times = np.arange(30) / 30
    pushed = MeasuredPush((x, y), (1.5, -0.5), 0.2, 0.5, times, np.zeros((30, 2)))
    path = answer(sim, pushed, (x, y), times[1:], sign / NEWTONS)
    return MeasuredPush((x, y), (1.5, -0.5), 0.2, 0.5, times, np.concatenate([[[x, y]], path]))


def test_a_known_push_gives_back_its_newtons(sim: Simulator) -> None:
    gain, error, is_outside = fit_gain(sim, known_push(sim))
    assert 1 / gain == pytest.approx(NEWTONS, rel=2e-3)
    assert error < 2e-3
    assert not is_outside


def test_a_push_that_answers_the_wrong_way_is_no_calibration(sim: Simulator) -> None:
    gain, _, _ = fit_gain(sim, known_push(sim, -1.0))
    with pytest.raises(ValueError, match="must be a positive number, but is -"):
        Calibration(1 / gain, "a push")


def test_newtons_move_as_much_as_the_picture_units_they_stand_for(sim: Simulator) -> None:
    states = []
    for calibration, force in ((None, 0.8), (Calibration(NEWTONS, "known"), 0.8 * NEWTONS)):
        sim.calibration = calibration
        sim.rest()
        x, y = (float(c) for c in sim.filming_camera.project(sim.means().double())[25])
        sim.step(0.3, forces=[(sim.grab((x, y)), (force, 0.0))])
        states.append(sim.state.q)
    assert sim.force_unit == "N"
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=1e-12)
    sim.calibration = None
    assert sim.force_unit == "picture units"


def test_the_file_beside_a_training(tmp_path: Path) -> None:
    assert load_calibration(tmp_path) is None
    saved = Calibration(3.0, "a push", 0.5)
    save_calibration(saved, tmp_path)
    assert load_calibration(tmp_path) == saved
    assert saved.kilograms == pytest.approx(6.0)
    (tmp_path / CALIBRATION_FILE).write_text('{"newtons": 1}')
    with pytest.raises(ValueError, match=r"must be what `lagsplat calibrate` writes, but .*calibration\.json is not"):
        load_calibration(tmp_path)


def test_what_a_measured_force_and_a_measured_torque_calibrate() -> None:
    force = InputScale("pull_N", "force", 4.0, "")
    torque = InputScale("motor_Nm", "torque", 0.6, "")
    unknown = InputScale("other_N", "force", None, "it has no effect in these clips")
    found, notes = calibration_from([force])
    assert found is not None
    assert found.newtons_per_unit == 4.0
    assert notes == ["pull_N sets the unit of pushes: one picture unit of force is 4 N."]
    found, notes = calibration_from([torque])
    assert found is None
    assert "one picture unit of torque is 0.6 Nm. Pushes stay in picture units" in notes[0]
    found, notes = calibration_from([torque], meters_per_unit=0.2)
    assert found is not None
    assert found.newtons_per_unit == pytest.approx(3.0)
    assert found.kilograms == pytest.approx(15.0)
    found, notes = calibration_from([unknown])
    assert found is None
    assert notes == ["other_N does not set the unit of pushes: it has no effect in these clips."]


def test_tracks(tmp_path: Path) -> None:
    file = tmp_path / "track.csv"
    file.write_text("time;x;y\n" + "".join(f"{1 + k / 10:.1f};{k},5;7\n".replace(".", ",") for k in range(50)))
    times, track = read_track(file)
    assert times[0] == 1.0
    np.testing.assert_allclose(track[:3], [[0.5, 7], [1.5, 7], [2.5, 7]])
    file.write_text("time,u,v\n" + "".join(f"{k},1,2\n" for k in range(50)))
    with pytest.raises(DataError, match="it has no x"):
        read_track(file)


def test_what_is_missing_is_named(sim: Simulator, tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    with pytest.raises(ValueError, match="needs one known push, or a measured force or torque, but: it was trained"):
        Calibrate(config)._by_length(sim)
    with pytest.raises(ValueError, match="must have a pixel, a force and an end"):
        Calibrate(config, response=tmp_path / "track.csv")._by_push(sim)
    with pytest.raises(ValueError, match="only one of --length-m and --between"):
        Calibrate(config, length_m=0.3)._by_length(sim)
    push = MeasuredPush((2.0, 2.0), (1.0, 0.0), 0.0, 0.2, np.arange(50) / 30, np.zeros((50, 2)))
    with pytest.raises(ValueError, match="shows only background at rest"):
        fit_gain(sim, push)
