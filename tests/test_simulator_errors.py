"""What the simulator says when it is asked for something impossible: what must hold, what came, what to do."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import FakeScene, filming_camera


@pytest.fixture
def sim() -> Simulator:
    return Simulator(FakeScene(), filming_camera())


def three_parts(message: str) -> bool:
    """Whether a message has a statement of what must hold and what came, and an indented line of advice."""
    first, _, advice = message.partition("\n  ")
    return ", but " in first and len(advice) > 10


@pytest.mark.parametrize("pixel", [(-1.0, 3.0), (64.0, 3.0), (3.0, 48.0), (math.nan, 3.0)])
def test_pixel_outside(sim: Simulator, pixel: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"`pixel` must lie inside the picture, 0 <= x < 64 and 0 <= y < 48") as error:
        sim.grab(pixel)
    assert three_parts(str(error.value))


@pytest.mark.parametrize("force", [(math.nan, 0.0), (0.0, math.inf)])
def test_force_not_finite(sim: Simulator, force: tuple[float, float]) -> None:
    sim.rest()
    grip = sim.grab(sim.grip_pixel(sim.grab((32.0, 40.0))))
    before = sim.state
    with pytest.raises(ValueError, match="A force must be two finite numbers") as error:
        sim.step(0.1, forces=[(grip, force)])
    assert three_parts(str(error.value))
    assert sim.state is before


def test_unknown_input(sim: Simulator) -> None:
    with pytest.raises(
        ValueError, match=r"`inputs` must name inputs of this training, but has 'pressure_kPa'"
    ) as error:
        sim.step(0.1, inputs={"pressure_kPa": 20.0})
    assert "trained without a sensor log" in str(error.value)


@pytest.mark.parametrize("dt", [math.nan, math.inf])
def test_step_not_finite(sim: Simulator, dt: float) -> None:
    with pytest.raises(ValueError, match="`dt` must be a finite number of seconds"):
        sim.step(dt)


def test_seek_not_finite(sim: Simulator) -> None:
    with pytest.raises(ValueError, match="A time must be a finite number of seconds, but is nan"):
        sim.seek(math.nan)


def test_no_such_clip(sim: Simulator) -> None:
    with pytest.raises(ValueError, match="`clip` must be one of the 1 clips"):
        sim.seek(0.0, clip=1)


@pytest.mark.parametrize("scales", [{"potential": -1.0}, {"damping": math.nan}])
def test_impossible_edit(sim: Simulator, scales: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be a finite scale, zero or more") as error:
        sim.edit(**scales)
    assert three_parts(str(error.value))


def test_running_far_back_through_strong_damping_stops_with_a_message() -> None:
    sim = Simulator(FakeScene("mass", damping=50.0), filming_camera())
    sim.seek(0.0)
    before = sim.state
    with pytest.raises(FloatingPointError, match="The motion must stay finite") as error:
        sim.step(-200.0)
    assert "backwards, damping amplifies every error" in str(error.value)
    assert sim.state is before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"camera_angle_x": 0.0, "width": 8, "height": 8}, "`camera_angle_x` must lie between 0 and pi"),
        ({"camera_angle_x": 0.8, "width": 0, "height": 8}, "`width` and `height` must be at least 1 pixel"),
    ],
)
def test_impossible_camera(sim: Simulator, arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        sim.camera(torch.eye(4), **arguments)
    assert three_parts(str(error.value))


def test_matrix_of_another_shape(sim: Simulator) -> None:
    with pytest.raises(ValueError, match=r"must be a finite \[3, 4\] or \[4, 4\] matrix"):
        sim.camera(torch.eye(3), camera_angle_x=0.8, width=8, height=8)


def test_scene_without_dynamics() -> None:
    scene = FakeScene()
    scene.mechanism = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="A scene must know its dynamics to be simulated") as error:
        Simulator(scene, filming_camera())
    assert three_parts(str(error.value))
