"""Measured inputs from a log to the simulator: read between rows, zero beyond the log, kept by checkpoints."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lagsplat_ns.data.prepare import prepare_clips
from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.simulation.input_log import InputLog, LoggedMotion
from lagsplat_ns.simulation.seen import SeenRange
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.simulator import Simulator
from lagsplat_ns.training.dynamics import _constant_inputs
from lagsplat_ns.training.recorded_inputs import recorded_inputs
from lagsplat_ns.types import State
from tests.fake_scenes import FakeScene, Spring, filming_camera
from tests.fake_scenes import Path as RecordedPath
from tests.video_clips import swinging_disc, write_video


class NoForce(torch.nn.Module):
    """V = 0 for one coordinate."""

    latent_dim = 1

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return 0.0 * q.sum(-1)

    def gradient(self, q: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(q)

    def hessian(self, q: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*q.shape, q.shape[-1], dtype=q.dtype)


class NoFriction(torch.nn.Module):
    def forward(self, qd: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(mass)


def sliding() -> Mechanism:
    """q'' = 2 u."""
    inputs = InputMap(1, 1)
    with torch.no_grad():
        inputs.weights.fill_(2.0)
    mechanism = Mechanism(ConstantMetric(torch.eye(1, dtype=torch.float64)), NoForce(), NoFriction(), inputs)
    return mechanism.double().requires_grad_(False)


def table(times, values) -> torch.Tensor:
    return torch.tensor(np.column_stack([times, values]), dtype=torch.float64)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_log_drives_exactly_what_its_integral_says(is_held: bool) -> None:
    """The rate gained is twice the area under the log, whatever the pieces in which it is asked for."""
    times = np.sort(np.random.default_rng(0).uniform(0.0, 1.0, 40))
    values = np.random.default_rng(1).standard_normal(40)
    motion = LoggedMotion(InputLog(table(times, values), is_held), Stepper())
    area = (values[:-1] * np.diff(times)).sum() if is_held else np.trapezoid(values, times)
    start = State(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    at_once = motion.advance(sliding(), start, 1.5, -0.2)
    assert float(at_once.qd) == pytest.approx(2.0 * area, abs=1e-10)
    state = start
    for k in range(15):
        state = motion.advance(sliding(), state, 0.1, -0.2 + 0.1 * k)
    assert float(state.q - at_once.q) == pytest.approx(0.0, abs=1e-10)
    back = motion.advance(sliding(), at_once, -1.5, 1.3)
    assert float(back.q) == pytest.approx(0.0, abs=1e-9)
    assert float(back.qd) == pytest.approx(0.0, abs=1e-9)


def test_a_steep_log_is_not_sampled_per_frame() -> None:
    """A pulse of 2 ms between two frames moves the thing as its area says."""
    log = InputLog(table([0.0, 0.0101, 0.0111, 0.0121, 1.0], [0.0, 0.0, 50.0, 0.0, 0.0]))
    start = State(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    end = LoggedMotion(log, Stepper()).advance(sliding(), start, 1 / 30, 0.0)
    assert float(end.qd) == pytest.approx(2.0 * 0.05, rel=1e-9)


class DrivenScene(FakeScene):
    """The mass of the tests with an input that pushes it to the right."""

    def __init__(self, logs: tuple[torch.Tensor, ...]) -> None:
        super().__init__("mass")
        inputs = InputMap(2, 1)
        with torch.no_grad():
            inputs.weights.copy_(torch.tensor([3.0, 0.0]).double().reshape(1, 2, 1))
        self.mechanism.inputs = inputs.requires_grad_(False)
        self.mechanism.potential = Spring(20.0)
        names = ("force_N",)
        self.spec = SceneSpec(1, 1, 1, 64, 48, 76.8, num_inputs=1, input_names=names, input_logs=logs)


def test_seek_goes_on_with_the_log_and_without_input_beyond_it() -> None:
    log = table([0.0, 2.5, 3.0], [1.0, 1.0, 1.0])
    driven, free = Simulator(DrivenScene((log,)), filming_camera()), Simulator(DrivenScene(()), filming_camera())
    assert driven.input_names == ("force_N",)
    end = driven.clip_end_s
    stepped = Simulator(DrivenScene(()), filming_camera())
    stepped.seek(end)
    stepped.step(3.0 - end, inputs={"force_N": 1.0})
    driven.seek(3.0)
    torch.testing.assert_close(driven.state.q, stepped.state.q, rtol=0, atol=1e-7)
    stepped.step(0.7)
    driven.seek(3.7)
    torch.testing.assert_close(driven.state.q, stepped.state.q, rtol=0, atol=1e-7)
    free.seek(3.7)
    assert float((free.state.q - driven.state.q).norm()) > 0.05


def test_every_clip_has_its_own_log() -> None:
    scene = DrivenScene((torch.zeros(0, 2, dtype=torch.float64), table([0.0, 9.0], [1.0, 1.0])))
    scene.paths = [scene.paths[0], scene.paths[0]]
    sim = Simulator(scene, filming_camera())
    states = []
    for clip in (0, 1):
        sim.seek(4.0, clip=clip)
        states.append(sim.state.q)
    assert float((states[0] - states[1]).norm()) > 0.05


def test_unknown_inputs_are_refused_by_name() -> None:
    sim = Simulator(DrivenScene(()), filming_camera())
    with pytest.raises(ValueError, match=r"has 'force'\.\n  It knows force_N\."):
        sim.step(0.1, inputs={"force": 1.0})


def test_outside_of_what_was_seen() -> None:
    scene = FakeScene("mass")
    sim = Simulator(scene, filming_camera())
    for time_s in (0.0, 0.5, 1.7):
        sim.seek(time_s)
        assert not sim.is_outside_seen
    sim.seek(0.0)
    grip = sim.grab((51.0, 30.0))
    sim.step(0.2, forces=[(grip, (60.0, 0.0))])
    assert sim.is_outside_seen
    path = RecordedPath(torch.arange(2.0), torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]]), 2)
    seen = SeenRange([path])
    state = State(torch.tensor([1.5]).double(), torch.tensor([0.0]).double())
    assert seen.excess(state) == pytest.approx(0.5)
    assert seen.excess(State(torch.tensor([0.5]).double(), torch.tensor([-3.0]).double())) == pytest.approx(0.5)


def test_a_checkpoint_keeps_names_units_and_logs(tmp_path: Path) -> None:
    times_s = np.arange(20) * 0.04
    for name in ("a", "b"):
        write_video(tmp_path / f"{name}.mp4", swinging_disc(times_s), times_s)
    rows = "".join(f"{k / 100:.2f},{math.sin(k / 9):.6f}\n" for k in range(200))
    (tmp_path / "b.csv").write_text("time_s,torque_Nm\n" + rows)
    clips = prepare_clips(tmp_path, quiet=True)
    known = recorded_inputs(clips)
    assert (known["num_inputs"], known["input_names"], known["input_units"]) == (1, ("torque_Nm",), ("Nm",))
    assert [len(t) for t in known["input_logs"]] == [0, 200]
    assert _constant_inputs(clips, ("torque_Nm",)) == []
    assert _constant_inputs(clips[:1], ("torque_Nm",)) == [0]

    spec = SceneSpec(3, 2, 4, 16, 16, 19.2, num_clips=2, **known)
    scene = LatentScene(replace(spec, latent_dim=2))
    torch.save(scene.state_dict(), tmp_path / "scene.pt")
    again = LatentScene.from_state_dict(torch.load(tmp_path / "scene.pt", weights_only=True))
    assert again.spec.input_names == ("torque_Nm",)
    assert again.spec.input_units == ("Nm",)
    torch.testing.assert_close(again.spec.input_logs[1], known["input_logs"][1], rtol=0, atol=0)
