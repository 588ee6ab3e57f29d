"""Compiled steps are those of the torch stepper: free, pulled, driven, forward, backward, and where they must fail."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.simulation.camera import PinholeCamera
from lagsplat_ns.simulation.grip import Grip, picture_jacobian
from lagsplat_ns.simulation.held import held_motion
from lagsplat_ns.simulation.loading import pinhole_camera
from lagsplat_ns.simulation.pulls import PulledMotion, pull_matrix
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.simulator import Simulator
from lagsplat_ns.types import State


def scene_of(d: int, num_inputs: int = 0) -> LatentScene:
    spec = SceneSpec(
        num_moving=40, num_static=5, num_frames=4, width=64, height=48, focal=76.8, latent_dim=d, num_bases=2,
        degree=2, is_embedded=True, num_inputs=num_inputs, input_names=tuple(f"u{k}" for k in range(num_inputs)),
        potential_degree=5, has_mechanism=False,
    )  # fmt: skip
    scene = LatentScene(spec)
    with torch.no_grad():
        for parameter in scene.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
        scene.mechanism = scene.new_mechanism()
        potential = scene.mechanism.potential
        potential.weights.copy_(0.05 * torch.randn_like(potential.weights))
        potential.stiffness_factor.mul_(2.0)
        if scene.mechanism.inputs is not None:
            scene.mechanism.inputs.weights.copy_(torch.randn_like(scene.mechanism.inputs.weights))
    return scene.requires_grad_(False)


def state_of(d: int) -> State:
    return State(0.3 * torch.randn(d, dtype=torch.float64), torch.randn(d, dtype=torch.float64))


def distance(a: State, b: State) -> float:
    return float(torch.cat([a.q - b.q, a.qd - b.qd]).abs().max())


def grip_of(camera: PinholeCamera) -> Grip:
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return Grip((3.0, 4.0), camera, torch.tensor([7, 2, 11]), weights, 1.0)


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("dt", [1 / 60, 0.1, -0.04])
def test_a_pulled_step_is_that_of_torch(d: int, dt: float) -> None:
    scene = scene_of(d, 2)
    mechanism: Mechanism = scene.mechanism  # type: ignore[assignment]
    grips = [grip_of(pinhole_camera(scene.spec)) for _ in range(2)]
    forces, u = [torch.tensor([0.7, -0.4]).double(), torch.tensor([0.1, 0.9]).double()], torch.tensor([0.3, -1.0])
    stepper, state = Stepper(), state_of(d)
    assert stepper.compiled(mechanism) is not None

    def acceleration(now: State, _: float) -> torch.Tensor:
        parts = [picture_jacobian(g, *held_motion(scene, g.indices)(now.q)).T @ f for g, f in zip(grips, forces)]
        return forward_dynamics(mechanism, now, torch.stack(parts).sum(0), u.double())

    expected = stepper.advance(state, dt, acceleration)
    motion = PulledMotion(scene, stepper)
    found = motion.advance(mechanism, state, dt, list(zip(grips, forces)), u.double())
    assert distance(found, expected) < 1e-10
    assert distance(expected, stepper.advance(state, dt, lambda now, _: forward_dynamics(mechanism, now))) > 1e-4
    again = motion.advance(mechanism, state, dt, list(zip(grips, forces)), u.double())
    assert torch.equal(again.q, found.q)
    assert torch.equal(again.qd, found.qd)


def test_inputs_that_change_along_a_step() -> None:
    mechanism: Mechanism = scene_of(2, 1).mechanism  # type: ignore[assignment]
    first, slope, state, stepper = torch.tensor([0.4]).double(), torch.tensor([-2.0]).double(), state_of(2), Stepper()
    compiled = stepper.compiled(mechanism)
    assert compiled is not None
    found = stepper.advance_compiled(compiled, state, -0.3, first, slope)
    expected = stepper.advance(
        state, -0.3, lambda now, after: forward_dynamics(mechanism, now, inputs=first + after * slope)
    )
    assert distance(found, expected) < 1e-10


def test_a_pull_is_a_weight_only_where_the_camera_looks_straight_at_the_plane() -> None:
    scene = scene_of(2)
    mechanism: Mechanism = scene.mechanism  # type: ignore[assignment]
    camera = pinhole_camera(scene.spec)
    turned = camera.world_from_camera.clone()
    angle = torch.tensor(0.2).double()
    turned[:3, :3] = turned[:3, :3] @ torch.tensor(
        [[angle.cos(), 0, angle.sin()], [0, 1, 0], [-angle.sin(), 0, angle.cos()]], dtype=torch.float64
    )
    aside = PinholeCamera.from_angle(turned, camera.camera_angle_x, camera.width, camera.height)
    for seen, is_straight in ((camera, True), (aside, False)):
        grip = grip_of(seen)
        motion = held_motion(scene, grip.indices)
        matrix = pull_matrix(grip, motion, mechanism)
        assert (matrix is not None) == is_straight
        if matrix is not None:
            for q in torch.randn(3, 2, dtype=torch.float64):
                expected = picture_jacobian(grip, *motion(q))
                found = matrix @ mechanism.metric.bases.jacobian(q)
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    grip = grip_of(aside)
    state, force = state_of(2), torch.tensor([0.7, -0.4]).double()
    motion = held_motion(scene, grip.indices)
    expected = Stepper().advance(
        state, 0.1, lambda now, _: forward_dynamics(mechanism, now, picture_jacobian(grip, *motion(now.q)).T @ force)
    )
    assert torch.equal(
        PulledMotion(scene, Stepper()).advance(mechanism, state, 0.1, [(grip, force)], None).q, expected.q
    )


def test_a_scene_that_changes_is_held_anew() -> None:
    scene = scene_of(2)
    mechanism: Mechanism = scene.mechanism  # type: ignore[assignment]
    grip, force, state = grip_of(pinhole_camera(scene.spec)), torch.tensor([0.7, -0.4]).double(), state_of(2)
    motion = PulledMotion(scene, Stepper())
    before = motion.advance(mechanism, state, 0.1, [(grip, force)], None)
    with torch.no_grad():
        scene.gauss_params["means"].mul_(1.5)
    after = motion.advance(mechanism, state, 0.1, [(grip, force)], None)
    assert distance(before, after) > 1e-5
    assert distance(after, PulledMotion(scene, Stepper()).advance(mechanism, state, 0.1, [(grip, force)], None)) == 0.0


@pytest.mark.parametrize(("speed", "dt"), [(1e200, 0.1), (3.0, -400.0), (math.nan, 0.1)])
def test_a_motion_that_cannot_be_followed_is_refused_alike(speed: float, dt: float) -> None:
    mechanism: Mechanism = scene_of(2).mechanism  # type: ignore[assignment]
    state, stepper = State(torch.zeros(2).double(), torch.tensor([speed, 0.0]).double()), Stepper()
    compiled = stepper.compiled(mechanism)
    assert compiled is not None
    with pytest.raises(FloatingPointError, match=r"The motion must stay finite, but .* s into a step of"):
        stepper.advance_compiled(compiled, state, dt)


def test_a_scene_says_how_its_simulator_steps_and_a_caller_may_say_otherwise() -> None:
    scene = scene_of(1)
    scene.spec = replace(scene.spec, integrator="rk4")
    with torch.no_grad():
        scene.path_times_s.copy_(torch.arange(4) / 30)
        scene.path_num_train.fill_(4)
    camera, ends = pinhole_camera(scene.spec), []
    for name in (None, "adaptive", "dopri5"):
        sim = Simulator(scene, camera, integrator=name)
        sim.seek(0.0)
        sim._state = State(sim.state.q + 0.2, sim.state.qd)
        sim.step(0.05)
        ends.append(sim.state)
    assert 0.0 < distance(ends[0], ends[1]) < 1e-6
    assert 0.0 < distance(ends[1], ends[2]) < 1e-7
    with pytest.raises(ValueError, match=r"`integrator` must be one of .* but is 'magic'"):
        Simulator(scene, camera, integrator="magic")
