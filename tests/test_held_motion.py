"""The shortcut that follows a few Gaussians gives what the whole scene gives."""

from __future__ import annotations

import pytest
import torch

from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.simulation.held import held_motion


def random_scene(has_pivots: bool, decoder: str = "bases") -> LatentScene:
    spec = SceneSpec(
        num_moving=12, num_static=5, num_frames=4, width=32, height=24, focal=38.4, latent_dim=2, num_bases=2,
        degree=2, has_pivots=has_pivots, decoder=decoder,  # type: ignore[arg-type]
    )  # fmt: skip
    scene = LatentScene(spec)
    with torch.no_grad():
        for parameter in scene.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    return scene


@pytest.mark.parametrize("has_pivots", [False, True])
def test_held_gaussians_move_as_in_the_scene(has_pivots: bool) -> None:
    scene = random_scene(has_pivots)
    indices, q = torch.tensor([7, 2, 11]), torch.tensor([0.4, -0.7], dtype=torch.float64)
    points, jacobians = held_motion(scene, indices)(q)
    torch.testing.assert_close(points, scene.means(q.float())[indices].double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(jacobians, scene.jacobian(q.float())[indices].double(), rtol=0, atol=2e-6)


def test_held_gaussians_of_the_conditional_decoder_move_as_in_the_scene() -> None:
    scene = random_scene(False, "conditional")
    indices, q = torch.tensor([7, 2, 11]), torch.tensor([0.4, -0.7], dtype=torch.float64)
    points, jacobians = held_motion(scene, indices)(q)
    assert torch.equal(points, scene.means(q.float())[indices].double())
    assert torch.equal(jacobians, scene.jacobian(q.float())[indices].double())
