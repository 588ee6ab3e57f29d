"""Laws that a simulator obeys whatever it simulates."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import HEIGHT, WIDTH, FakeScene, filming_camera

KINDS = ["pendulum", "mass"]


def simulator(kind: str = "pendulum", damping: float = 0.2) -> Simulator:
    return Simulator(FakeScene(kind, damping), filming_camera())


def object_pixel(sim: Simulator) -> tuple[float, float]:
    """Where a moving Gaussian near the end of the thing appears now."""
    x, y = sim.filming_camera.project(sim.means()[20].double()).tolist()
    return x, y


@pytest.mark.parametrize("kind", KINDS)
def test_work_in_the_picture_is_work_on_the_coordinates(kind: str) -> None:
    """f . (B qd) = (B^T f) . qd, with B qd the velocity of the held spot seen by finite differences."""
    sim = simulator(kind)
    sim.seek(0.37)
    grip = sim.grab(object_pixel(sim))
    force = torch.tensor([0.7, -1.3], dtype=torch.float64)
    generalized = sim.grip_jacobian(grip).T @ force
    before, h, q, qd = sim.state, 1e-2, sim.state.q, sim.state.qd
    ends = []
    for sign in (1, -1):
        sim._state = type(before)(q + sign * h * qd, qd)
        ends.append(torch.tensor(sim.grip_pixel(grip), dtype=torch.float64) / sim.filming_camera.pixels_per_unit)
    seen_velocity = (ends[0] - ends[1]) / (2 * h)
    assert float(force @ seen_velocity) == pytest.approx(float(generalized @ qd), rel=2e-4, abs=1e-5)
    exact = sim.grip_jacobian(grip, q) @ qd
    assert float(force @ exact) == pytest.approx(float(generalized @ qd), rel=1e-12)


def test_first_acceleration_is_the_generalized_force_over_the_mass() -> None:
    sim = simulator()
    sim.rest()
    grip = sim.grab(object_pixel(sim))
    force = (0.8, 0.3)
    expected = sim.grip_jacobian(grip).T @ torch.tensor(force, dtype=torch.float64)
    dt = 1e-4
    sim.step(dt, forces=[(grip, force)])
    assert float(sim.state.qd) / dt == pytest.approx(float(expected), rel=1e-4)
    # pushing the hanging bob sideways by f turns it by f times its arm: to the right is positive
    assert float(expected) == pytest.approx(force[0] * float(-sim.means()[20, 2] + 0.55), rel=0.1)


def test_forces_superpose_in_a_linear_thing() -> None:
    """Two pulls at once move a spring-held mass by the sum of what each does alone, to 1e-6."""
    responses = {}
    for name in ("both", "first", "second"):
        sim = simulator("mass")
        sim.rest()
        grips = [sim.grab((32.0, 24.0)), sim.grab((35.0, 22.0))]
        pulls = {"first": [(grips[0], (3.0, 1.0))], "second": [(grips[1], (-1.0, 2.0))]}
        pulls["both"] = pulls["first"] + pulls["second"]
        rest = sim.state.q.clone()
        for _ in range(30):
            sim.step(1 / 60, forces=pulls[name])
        responses[name] = sim.state.q - rest
    difference = responses["both"] - responses["first"] - responses["second"]
    assert float(difference.norm() / responses["both"].norm()) < 1e-6


def test_generalized_forces_superpose_exactly() -> None:
    sim = simulator()
    grip = sim.grab(object_pixel(sim))
    jacobian = sim.grip_jacobian(grip)
    one, two = torch.tensor([1.0, 2.0]).double(), torch.tensor([-0.5, 3.0]).double()
    torch.testing.assert_close(jacobian.T @ one + jacobian.T @ two, jacobian.T @ (one + two), rtol=1e-14, atol=1e-14)


def test_background_does_not_answer() -> None:
    """A click on the background does at most 0.7 % of what a click on the thing does, wherever it is."""
    sim = simulator()
    sim.rest()
    answers = {}
    for name, pixel in {"thing": object_pixel(sim), "corner": (2.0, 2.0), "right": (WIDTH - 3.0, HEIGHT - 3.0)}.items():
        sim.rest()
        grip = sim.grab(pixel)
        sim.step(0.1, forces=[(grip, (1.0, 0.0))])
        answers[name] = float((sim.state.q - sim._rest_q).norm())
    assert answers["thing"] > 1e-4
    assert max(answers["corner"], answers["right"]) <= 0.007 * answers["thing"]


def test_pixel_shares_add_up_to_the_alpha_of_the_pixel() -> None:
    sim = simulator()
    grip = sim.grab(object_pixel(sim))
    assert float(grip.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert 0.9 < grip.coverage <= 1.0 + 1e-6
    assert sim.scene.is_moving[grip.indices].all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damping", [0.0, 0.2])
def test_steps_back_undo_steps_forward(kind: str, damping: float) -> None:
    sim = simulator(kind, damping)
    sim.seek(0.4)
    before = sim.state
    grip = sim.grab(object_pixel(sim))
    pulls = [(grip, (1.0, -0.5))]
    for _ in range(30):
        sim.step(1 / 60, forces=pulls)
    assert float((sim.state.q - before.q).norm()) > 0.05
    for _ in range(30):
        sim.step(-1 / 60, forces=pulls)
    assert float((sim.state.q - before.q).norm()) < 1e-6
    assert float((sim.state.qd - before.qd).norm()) < 1e-6
    assert sim.time_s == pytest.approx(0.4, abs=1e-12)


def test_one_long_step_is_many_short_ones() -> None:
    long, short = simulator(), simulator()
    long.seek(2.5)
    short.seek(2.5)
    long.step(1.5)
    for _ in range(150):
        short.step(0.01)
    torch.testing.assert_close(long.state.q, short.state.q, rtol=0, atol=1e-6)


@pytest.mark.parametrize("time_s", [0.0, 59 / 30, 1.0])
def test_seeking_is_continuous_where_the_recording_begins_and_ends(time_s: float) -> None:
    sim = simulator()
    sim.seek(time_s - 1e-6)
    before = sim.state
    sim.seek(time_s + 1e-6)
    assert float((sim.state.q - before.q).abs().max()) < 1e-5
    assert float((sim.state.qd - before.qd).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_continuation_is_the_true_motion(kind: str) -> None:
    """Past the end and before the start, seeking agrees with stepping there from inside the recording."""
    sim = simulator(kind)
    for target in (5.03, -1.01):
        sim.seek(1.0)
        sim.step(target - 1.0)
        stepped = sim.state
        sim.seek(target)
        torch.testing.assert_close(sim.state.q, stepped.q, rtol=0, atol=1e-6)


def test_between_frames_the_recording_is_followed_to_fourth_order() -> None:
    sim = simulator()
    sim.seek(1.0)
    sim.step(0.5 / 30)
    exact = sim.state.q
    sim.seek(1.0 + 0.5 / 30)
    assert float((sim.state.q - exact).abs().max()) < 2e-6


def test_energy_falls_and_is_one_at_the_start_and_zero_at_rest() -> None:
    sim = simulator()
    assert sim.energy() == pytest.approx(1.0, abs=1e-12)
    energies = []
    for _ in range(40):
        sim.step(0.05)
        energies.append(sim.energy())
    assert all(later < earlier for earlier, later in itertools.pairwise(energies))
    sim.rest()
    assert sim.energy() == pytest.approx(0.0, abs=1e-9)


def test_energy_is_kept_without_damping() -> None:
    sim = simulator(damping=0.0)
    sim.step(6.0)
    assert sim.energy() == pytest.approx(1.0, abs=1e-6)


def test_motion_dies_out_after_a_huge_push() -> None:
    sim = simulator("mass", damping=2.0)
    sim.rest()
    grip = sim.grab((32.0, 24.0))
    sim.step(0.1, forces=[(grip, (500.0, 0.0))])
    assert float(sim.state.q.norm()) > 1.0
    sim.step(20.0)
    assert math.isfinite(sim.energy())
    assert float(sim.state.q.norm()) < 1e-6


def test_rest_stays_at_rest() -> None:
    sim = simulator()
    sim.rest()
    sim.step(10.0)
    assert float(sim.state.q.abs().max()) < 1e-6


def test_the_same_steps_give_the_same_states_and_pictures() -> None:
    """Bitwise, from two simulators and from one used twice."""
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        sim = simulator()
        for _ in range(2):
            sim.seek(0.5)
            sim.step(0.1, forces=[(sim.grab(object_pixel(sim)), (1.0, 1.0))])
            results.append((sim.state.q.clone(), sim.render()))
    for q, picture in results[1:]:
        assert torch.equal(picture, results[0][1])
        assert torch.equal(q, results[0][0])


def test_half_the_potential_is_half_the_stiffness() -> None:
    """A spring-held mass without damping turns round after pi / sqrt(k); halving k stretches that by sqrt 2."""
    sim = simulator("mass", damping=0.0)
    sim.edit(potential=0.5)
    sim.seek(0.0)
    start = sim.state
    sim.step(math.pi / math.sqrt(10.0))
    torch.testing.assert_close(sim.state.q, -start.q, rtol=0, atol=1e-6)
    sim.edit()
    sim.seek(0.0)
    sim.step(math.pi / math.sqrt(20.0))
    torch.testing.assert_close(sim.state.q, -start.q, rtol=0, atol=1e-6)


def test_edits_change_what_was_already_rolled_out() -> None:
    sim = simulator()
    sim.seek(4.0)
    before = sim.state.q.clone()
    sim.edit(damping=3.0)
    sim.seek(4.0)
    assert float((sim.state.q - before).abs().max()) > 1e-3
