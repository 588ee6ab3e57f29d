"""The benchmark's scenes obey the physics that textbooks give them, and their clips show what their truth says."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from lagsplat_ns.bench import opengl
from lagsplat_ns.bench.scene import registry, scene_names
from lagsplat_ns.data.sensors import read_sensors

if importlib.util.find_spec("mujoco") is None:
    pytest.skip("the benchmark's scenes need MuJoCo: pip install 'lagsplat-ns[bench]'", allow_module_level=True)

from lagsplat_ns.bench.physics import RECORD_RATE, Physics, PointForce
from lagsplat_ns.bench.scenes.bending import Cantilever, Rope
from lagsplat_ns.bench.scenes.pendulums import Pendulum
from lagsplat_ns.bench.scenes.springs import MassOnSpring
from lagsplat_ns.bench.truth import Truth
from lagsplat_ns.bench.writer import parameters_of, write_clip

G = 9.81


def without_losses(physics: Physics) -> Physics:
    """The same scene without joint damping, air and thread damping."""
    physics.model.dof_damping[:] = 0.0
    physics.model.tendon_damping[:] = 0.0
    physics.model.opt.viscosity = 0.0
    return physics


@pytest.mark.parametrize("name", scene_names())
def test_energy_is_kept_without_losses_and_falls_with_them(name: str) -> None:
    physics = Physics(parameters_of(name, 1).build())
    start = physics.balance()
    shape = physics.modes(start).right[: physics.num_joints, 0]  # of the slowest mode
    shape = (shape / shape[np.abs(shape).argmax()]).real
    rates = (0.2 if name == "cloth" else 1.5) * shape
    with_losses = physics.simulate(start, rates, 0.5).energy
    kept = without_losses(physics).simulate(start, rates, 0.5).energy
    span = kept[0] - physics.simulate(start, 0 * rates, 0.0).energy[0]
    assert span > 0
    assert np.abs(kept - kept[0]).max() < 2e-4 * span
    assert np.diff(with_losses).max() < 1e-6 * span
    assert with_losses[-1] < kept[-1] - 1e-3 * span


@pytest.mark.parametrize("name", scene_names())
def test_a_seed_always_draws_the_same_scene_and_another_seed_another(name: str) -> None:
    kind = registry()[name]
    assert kind.from_seed(3).build().xml == kind.from_seed(3).build().xml
    assert kind.from_seed(3).build().xml != kind.from_seed(4).build().xml


def test_a_pendulum_swings_as_its_inertia_says() -> None:
    parameters = Pendulum.from_seed(0)
    physics = Physics(parameters.build())
    u, m, rod = parameters.unit_m, parameters.bob_mass_kg, parameters.rod_mass_kg
    length, radius = parameters.length * u, parameters.bob_radius * u
    depth = 0.05 * u
    bob = m * (length**2 + radius**2 / 4 + (2 * depth) ** 2 / 12 + radius**2 / 4)
    bob -= m * (2 * depth) ** 2 / 12  # about the axis of the disc itself: m r^2 / 2
    inertia = bob + float(physics.mass_matrix(np.zeros(1))[0, 0] - bob)
    # MuJoCo's inertia is that of bob and rod within the rod's round ends
    assert inertia == pytest.approx(m * (length**2 + radius**2 / 2) + rod * length**2 / 3, rel=0.02)
    rate = math.sqrt((m + rod / 2) * G * length / inertia)
    decay = (m * (length**2 + radius**2 / 2) + rod * length**2 / 3) / inertia / parameters.decay_s
    modes = physics.modes(physics.balance())
    assert modes.decay_rates[0] == pytest.approx(decay, rel=1e-6)
    assert modes.frequencies_hz[0] == pytest.approx(math.sqrt(rate**2 - decay**2) / (2 * math.pi), rel=1e-6)


def test_a_block_on_a_band_swings_at_the_frequency_it_was_given() -> None:
    for seed in (0, 1):  # upright, level
        parameters = MassOnSpring.from_seed(seed)
        physics = Physics(parameters.build())
        rest = physics.balance()
        assert abs(rest[0]) < 1e-5 * parameters.unit_m
        modes, decay = physics.modes(rest), 1 / parameters.decay_s
        rate = 2 * math.pi * parameters.frequency_hz
        assert modes.decay_rates[0] == pytest.approx(decay, rel=1e-6)
        assert modes.frequencies_hz[0] == pytest.approx(math.sqrt(rate**2 - decay**2) / (2 * math.pi), rel=1e-6)


def test_a_limp_rope_has_the_frequencies_of_a_hanging_chain() -> None:
    """Zeros of the Bessel function J0, Bernoulli 1733."""
    parameters = dataclasses.replace(Rope.from_seed(0), stiffness_share=1e-9, decay_s=1e6)
    physics = Physics(parameters.build())
    length = parameters.length * parameters.unit_m
    found = physics.modes(physics.balance()).frequencies_hz[:2]
    chain = [zero / 2 * math.sqrt(G / length) / (2 * math.pi) for zero in (2.404826, 5.520078)]
    assert found == pytest.approx(chain, rel=0.015)


def test_a_beam_without_weight_has_its_frequency() -> None:
    parameters = dataclasses.replace(Cantilever.from_seed(0), decay_s=1e6, radii=(0.04, 0.04))
    physics = Physics(parameters.build())
    physics.model.opt.gravity[:] = 0.0
    found = physics.modes(physics.balance()).frequencies_hz[0]
    # the joint at the clamp carries a whole link's bending though only half a link lies behind it
    assert found == pytest.approx(parameters.frequency_hz, rel=0.12)
    finer = Physics(dataclasses.replace(parameters, num_links=42).build())
    finer.model.opt.gravity[:] = 0.0
    closer = finer.modes(finer.balance()).frequencies_hz[0]
    assert abs(closer - parameters.frequency_hz) < 0.5 * abs(found - parameters.frequency_hz)


def test_a_push_starts_as_jacobian_and_mass_say() -> None:
    physics = Physics(parameters_of("double_pendulum", 0).build())
    rest = physics.balance()
    force = (0.7, 0.4)
    motion = physics.simulate(rest, 0 * rest, 3 / RECORD_RATE, forces=[PointForce("bob_lower", force, 0.0, 1.0)])
    jacobian = physics.point_jacobian(rest)[physics.scene.points.index("bob_lower")]
    acceleration = np.linalg.solve(physics.mass_matrix(rest), jacobian.T @ np.array(force))
    error = np.linalg.norm(motion.qvel[1] - acceleration / RECORD_RATE)
    assert error < 0.02 * np.linalg.norm(acceleration) / RECORD_RATE


# ---- clips
@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pendulum")
    write_clip("motor_pendulum", 1, folder, seconds=1.0, size=(128, 96))
    return folder


def test_a_clip_has_exact_times_and_the_wanted_size(clip: Path) -> None:
    with av.open(str(clip / "clip.mp4")) as container:
        frames = list(container.decode(video=0))
    assert [frame.time for frame in frames] == pytest.approx([k / 30 for k in range(30)], abs=1e-9)
    assert (frames[0].width, frames[0].height) == (128, 96)


def test_the_picture_shows_the_points_where_the_truth_says(clip: Path) -> None:
    """The middle of the bob has a color of its own."""
    truth = Truth.load(clip)
    with av.open(str(clip / "clip.mp4")) as container:
        frames = [frame.to_ndarray(format="rgb24").astype(float) for frame in container.decode(video=0)]
    bob = truth.point_names.index("bob")
    for k in (0, 14, 29):
        x, y = truth.paths(np.array([k / 30]))[0, bob]
        color = frames[k][int(y), int(x)]
        near = np.linalg.norm(frames[k] - color, axis=-1) < 40
        rows, columns = np.nonzero(near)
        close = np.hypot(columns + 0.5 - x, rows + 0.5 - y) < 8
        assert np.mean(columns[close] + 0.5) == pytest.approx(x, abs=0.6)
        assert np.mean(rows[close] + 0.5) == pytest.approx(y, abs=0.6)


def test_the_log_is_what_drove_the_scene(clip: Path) -> None:
    truth = Truth.load(clip)
    log, _ = read_sensors(clip / "clip.csv", ("auto",), "linear", 0.0, 29 / 30)
    assert log is not None
    assert log.names == ("torque_Nm",) == truth.input_names
    times = np.linspace(0, 0.9, 7)
    assert log.at(times)[:, 0] == pytest.approx([truth.inputs_at(t)["torque_Nm"] for t in times], rel=1e-4, abs=1e-6)


def test_truth_is_read_back_as_it_was_written(clip: Path) -> None:
    written = write_clip("mass_on_spring", 0, clip / "other", seconds=0.4, size=(32, 32))
    read = Truth.load(clip / "other")
    for name, value in vars(written).items():
        if name == "parameters":
            assert read.parameters["mass_kg"] == value["mass_kg"]
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(read, name), value)
        elif name == "pushes":
            for ours, theirs in zip(value, read.pushes, strict=True):
                assert (ours.pixel, ours.force, ours.start_s) == (theirs.pixel, theirs.force, theirs.start_s)
                np.testing.assert_array_equal(ours.answers, theirs.answers)
        elif not name.startswith("_"):
            assert getattr(read, name) == value
    assert len(written.pushes) == 6
    assert all(0.1 - 1e-9 <= push.end_s - push.start_s <= 0.4 + 1e-9 for push in written.pushes)


def test_push_forces_in_picture_units_are_those_in_newtons(clip: Path) -> None:
    truth = Truth.load(clip)
    for push in truth.pushes:
        scale = truth.mass_kg * truth.unit_m
        assert (push.force[0] * scale, -push.force[1] * scale) == pytest.approx(push.force_N)


def test_no_background_pixel_shows_the_thing(clip: Path) -> None:
    truth = Truth.load(clip)
    gaps = np.linalg.norm(truth.background[:, None] - truth.rest_points[None], axis=-1)
    assert gaps.min() > 6.0


# ---- what can be missing
def test_a_missing_scene_names_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match=r"A scene must be one of pendulum, .*but is 'trebuchet'"):
        parameters_of("trebuchet", 0)


def test_without_mujoco_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "lagsplat-ns\[bench\]"'):
        opengl.load_mujoco()


def test_without_any_opengl_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **_: object) -> subprocess.CompletedProcess:
        return subprocess.CompletedProcess(command, 1, "", "ImportError: no library")

    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(opengl.subprocess, "run", fails)
    monkeypatch.setattr(opengl, "find_spec", lambda _: object())
    module = sys.modules.pop("mujoco", None)
    opengl._choose_backend.cache_clear()
    try:
        assert opengl._choose_backend() == tuple(f"{name}: ImportError: no library" for name in ("egl", "osmesa"))
        if module is not None:
            sys.modules["mujoco"] = module
        with pytest.raises(OSError, match=r"egl: ImportError: no library.*\n  Install one: apt-get install libosmesa6"):
            opengl.load_mujoco(for_pictures=True)
    finally:
        opengl._choose_backend.cache_clear()
        if module is not None:
            sys.modules["mujoco"] = module


def test_a_renderer_that_cannot_draw_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    physics = Physics(parameters_of("pendulum", 0).build())

    def cannot(*_: object) -> None:
        raise RuntimeError("no context")

    monkeypatch.setattr(physics.mujoco, "Renderer", cannot)
    with pytest.raises(OSError, match=r"cannot: RuntimeError: no context.\n  Install one: apt-get install libosmesa6"):
        opengl.new_renderer(physics.model, 16, 16)
