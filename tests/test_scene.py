"""A latent scene: poses, derivatives, checkpoints, and q read off its own pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training.compositing import render_over, render_scene, render_static
from lagsplat_ns.training.conditional_start import start_conditional
from lagsplat_ns.training.measure import find_again, measure, track

CAMERA = FilmingCamera(64, 48, 76.8)
SPEC = SceneSpec(
    num_moving=60, num_static=150, num_frames=5, width=64, height=48, focal=76.8, latent_dim=1, degree=1,
    has_pivots=True, is_embedded=True,
)  # fmt: skip


def random_scene(spec: SceneSpec = SPEC) -> LatentScene:
    """A colored card that swings about a pivot above it, before a wall of static Gaussians."""
    torch.manual_seed(0)
    scene = LatentScene(spec)
    moving, static = spec.num_moving, spec.num_static
    with torch.no_grad():
        params = scene.gauss_params
        params["means"][:moving] = torch.rand(moving, 3) * torch.tensor([0.3, 0.0, 0.4]) - torch.tensor(
            [0.15, 2e-3, 0.4]
        )
        params["means"][moving:] = torch.rand(static, 3) * torch.tensor([2.0, 1e-3, 1.5]) - torch.tensor(
            [1.0, 0.0, 0.75]
        )
        params["scales"][:moving], params["scales"][moving:] = np.log(0.03), np.log(0.12)
        params["scales"][:, 1] = np.log(1e-3)
        params["opacities"].fill_(2.0)
        params["features_dc"].copy_(torch.randn(moving + static, 3))
        params["skinning"].copy_(torch.randn(moving + static, spec.num_bases))
        scene.bases.pivots.copy_(torch.tensor([[0.0, 0.5]]).expand(spec.num_bases, 2))
        scene.bases.angle_coefficients.copy_(0.4 * torch.randn_like(scene.bases.angle_coefficients))
        scene.bases.angle_coefficients[1:2] += 0.4
        scene.bases.translation_coefficients.copy_(0.05 * torch.randn_like(scene.bases.translation_coefficients))
    return scene


def filmed(scene: LatentScene, q: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """The background [H, W, 3], and pictures [F, H, W, 3] of the scene at q [F, d], rounded to bytes."""
    with torch.no_grad():
        background = render_static(scene, CAMERA)
        pictures = render_over(scene, CAMERA, background, scene.moving(torch.from_numpy(q).float()))
    return background, (pictures.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


@pytest.mark.parametrize("decoder", ["bases", "conditional"])
@pytest.mark.parametrize("latent_dim, num_bases", [(1, 1), (2, 3)])
def test_jacobian_is_the_derivative_of_the_means(decoder: str, latent_dim: int, num_bases: int) -> None:
    spec = replace(SPEC, latent_dim=latent_dim, num_bases=num_bases, has_pivots=False, degree=2, decoder=decoder)
    scene = random_scene(spec)
    if scene.conditional is not None:
        start_conditional(scene, torch.randn(20, latent_dim))
    q = 0.3 * torch.randn(latent_dim)
    slope = torch.autograd.functional.jacobian(scene.means, q)
    torch.testing.assert_close(scene.jacobian(q), slope, rtol=0, atol=2e-6)
    assert float(scene.jacobian(q)[spec.num_moving :].abs().max()) == 0.0


def test_the_conditional_start_agrees_with_the_bases_where_each_primitive_sits() -> None:
    spec = replace(SPEC, decoder="conditional")
    scene = random_scene(spec)
    start_conditional(scene, torch.linspace(-1, 1, 30)[:, None])
    assert scene.conditional is not None
    for k in (0, 17, 59):
        q = scene.conditional.latent_means[k]
        expected = scene.pose_moving(scene.bases(q), scene.bases.angles(q))[0][k]
        torch.testing.assert_close(scene.means(q)[k], expected, rtol=0, atol=1e-6)
        assert float(scene.conditional(q)[1][k]) == pytest.approx(1.0)


def test_moving_over_a_background_is_the_picture_of_the_whole_scene() -> None:
    """Up to the cut-off: the primitive that would bring T to 1e-4 is not drawn; at opacity 0.88, T was up to 8e-4."""
    scene = random_scene()
    q = torch.tensor([[-0.6], [0.2]])
    with torch.no_grad():
        over = render_over(scene, CAMERA, render_static(scene, CAMERA), scene.moving(q))
        assert float((over - render_scene(scene, CAMERA, q)).abs().max()) < 8.4e-4


def test_training_cannot_move_primitives_out_of_the_plane() -> None:
    scene = random_scene()
    pictures = render_over(scene, CAMERA, torch.zeros(48, 64, 3), scene.moving(torch.tensor([[0.3]])))
    pictures.square().sum().backward()
    means, scales, quats = (scene.gauss_params[name].grad for name in ("means", "scales", "quats"))
    assert means is not None and scales is not None and quats is not None
    assert float(means[:, 1].abs().max()) == 0.0 and float(means[: SPEC.num_moving, 0].abs().max()) > 0.0
    assert float(scales[:, 1].abs().max()) == 0.0
    assert float(quats[:, [1, 3]].abs().max()) == 0.0


@pytest.mark.parametrize("decoder", ["bases", "conditional"])
@pytest.mark.parametrize("metric", ["induced", "learned"])
def test_a_checkpoint_gives_the_same_scene(decoder: str, metric: str) -> None:
    spec = replace(SPEC, decoder=decoder, metric=metric, input_names=("torque_Nm",), num_inputs=1)
    scene = random_scene(replace(spec, has_mechanism=True))
    assert scene.mechanism is not None
    scene.mechanism.set_vector(scene.mechanism.parameter_vector() + 0.1)
    again = LatentScene.from_state_dict(scene.state_dict())
    assert again.spec == scene.spec
    for name, value in scene.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, again.state_dict()[name]), name


def test_q_is_read_off_pictures_to_a_thousandth() -> None:
    """From guesses that are two pixels off; the scene's own pictures, rounded to bytes."""
    scene = random_scene()
    truth = torch.linspace(-1, 1, 7)[:, None]
    background, frames = filmed(scene, truth.numpy())
    found = measure(scene, CAMERA, background, frames, truth.double().numpy() + 0.08, iterations=5)
    np.testing.assert_allclose(found.q, truth.numpy(), rtol=0, atol=1e-3)
    assert (found.deviation < 1e-2).all()


def test_unseen_frames_are_followed_from_the_last_seen_one() -> None:
    scene = random_scene()
    times = np.arange(25) / 25
    truth = np.sin(3.0 * times)[:, None]
    background, frames = filmed(scene, truth)
    found = track(scene, CAMERA, background, frames[1:], truth[0], np.array([3.0]), times)
    np.testing.assert_allclose(found, truth[1:], rtol=0, atol=3e-3)


def test_another_clip_of_the_thing_is_found_again_from_states_of_the_first() -> None:
    """It starts between states that the first clip shows, far from where that one starts, and moves at once."""
    scene = random_scene()
    known = np.linspace(-1.2, 1.2, 40)[:, None]
    times = np.arange(20) / 30
    truth = 0.73 * np.cos(3.0 * times)[:, None]
    background, frames = filmed(scene, truth)
    found = find_again(scene, CAMERA, background, frames, times, known)
    np.testing.assert_allclose(found, truth, rtol=0, atol=3e-3)
