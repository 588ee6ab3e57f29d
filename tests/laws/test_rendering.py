"""Laws of rendering: what must not change an image."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from lagsplat_ns.compiling import pool
from lagsplat_ns.render.cameras import intrinsics_matrices, viewmats_from_nerfstudio
from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.reference import rotation_matrices
from lagsplat_ns.render.scenes import random_scene


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product of quaternions wxyz: R(a b) = R(a) R(b)."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        -1,
    )


def test_moving_scene_and_camera_together_keeps_the_image() -> None:
    arguments = random_scene(500, 70, 52, num_cameras=2).arguments()
    colors, alphas, _ = rasterization(**arguments, render_mode="RGB+ED")
    turn = torch.tensor([0.9, 0.1, -0.4, 0.2], dtype=torch.float64)
    R, shift = rotation_matrices(turn), torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    viewmats = arguments["viewmats"].double().clone()
    viewmats[:, :3, :3] = viewmats[:, :3, :3] @ R.T
    viewmats[:, :3, 3] -= viewmats[:, :3, :3] @ shift
    moved = arguments | {
        "means": (arguments["means"].double() @ R.T + shift).float(),
        "quats": quaternion_product(turn, arguments["quats"].double()).float(),
        "viewmats": viewmats.float(),
    }
    colors_moved, alphas_moved, _ = rasterization(**moved, render_mode="RGB+ED")
    # Round-off of float32 can move a pixel over a threshold of gsplat's: by at most 1/255
    difference = (colors - colors_moved).abs()
    assert difference.flatten().quantile(0.999) <= 1e-4
    assert difference[..., :3].max() <= 2 / 255
    assert (alphas - alphas_moved).abs().max() <= 2 / 255


def test_permuting_gaussians_keeps_the_image_bitwise() -> None:
    arguments = random_scene(500, 70, 52).arguments()
    order = torch.randperm(500)
    permuted = {k: arguments[k][order] for k in ("means", "quats", "scales", "opacities", "colors")}
    for one, other in zip(rasterization(**arguments)[:2], rasterization(**(arguments | permuted))[:2]):
        assert torch.equal(one, other)


def test_the_sign_of_a_quaternion_keeps_the_image_bitwise() -> None:
    arguments = random_scene(500, 70, 52).arguments()
    signs = torch.where(torch.rand(500, 1) < 0.5, -1.0, 1.0)
    flipped = arguments | {"quats": signs * arguments["quats"]}
    for one, other in zip(rasterization(**arguments)[:2], rasterization(**flipped)[:2]):
        assert torch.equal(one, other)


def test_the_length_of_a_quaternion_keeps_the_image_and_has_no_gradient() -> None:
    arguments = random_scene(500, 70, 52).arguments()
    quats = arguments["quats"].requires_grad_()
    colors, _, _ = rasterization(**arguments)
    doubled, _, _ = rasterization(**(arguments | {"quats": 2 * quats.detach()}))
    assert torch.equal(colors, doubled)
    (colors**2).sum().backward()
    along = (quats.grad * quats.detach()).sum(-1)
    assert along.abs().max() <= 1e-5 * quats.grad.norm(dim=-1).max() * quats.norm(dim=-1).max()


def test_a_pixel_is_a_mixture_of_colors_and_background() -> None:
    arguments = random_scene(500, 70, 52).arguments()
    arguments["colors"] = torch.full((500, 3), 0.25)
    colors, alphas, _ = rasterization(**arguments, backgrounds=torch.full((1, 3), 0.75))
    assert (colors - (0.25 * alphas + 0.75 * (1 - alphas))).abs().max() <= 1e-6
    assert alphas.min() >= 0
    assert alphas.max() <= 1 - 1e-4 + 1e-6


def rendered(arguments: dict[str, Any]) -> list[Tensor]:
    """Images and all gradients."""
    leaves = {
        k: arguments[k].detach().clone().requires_grad_()
        for k in ("means", "quats", "scales", "opacities", "colors", "viewmats")
    }
    colors, alphas, meta = rasterization(**(arguments | leaves), render_mode="RGB+ED", absgrad=True)
    meta["means2d"].retain_grad()
    ((colors**2).sum() + alphas.sum()).backward()
    others = [meta["means2d"].grad, meta["means2d"].absgrad, meta["flatten_ids"]]
    return [colors.detach(), alphas.detach(), *(leaf.grad for leaf in leaves.values()), *others]


@pytest.fixture
def _default_threads_afterwards():
    yield
    pool.set_num_threads(None)


@pytest.mark.usefixtures("_default_threads_afterwards")
def test_the_number_of_threads_changes_no_bit() -> None:
    arguments = random_scene(3000, 150, 90, num_cameras=2).arguments()
    pool.set_num_threads(1)
    expected = rendered(arguments)
    for num_threads in (2, 3, 7):
        pool.set_num_threads(num_threads)
        for _ in range(3):
            for one, other in zip(expected, rendered(arguments)):
                assert torch.equal(one, other)


@pytest.mark.usefixtures("_default_threads_afterwards")
def test_four_python_threads_at_once_get_the_images_of_one() -> None:
    scenes = [random_scene(1500, 100, 80, num_cameras=2, seed=seed).arguments() for seed in range(4)]
    pool.set_num_threads(3)
    expected = [rendered(arguments) for arguments in scenes]
    wrong: list[str] = []

    def work(index: int) -> None:
        try:
            for repeat in range(8):
                for one, other in zip(expected[index], rendered(scenes[index])):
                    if not torch.equal(one, other):
                        wrong.append(f"thread {index}, repeat {repeat}")
        except Exception as error:  # must reach the main thread
            wrong.append(f"thread {index}: {error!r}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_nerfstudio_cameras_look_where_they_say() -> None:
    # The picture plane: the camera at (0, -D, 0) looks along +y, x right, z up
    D = 2.4
    camera_to_worlds = torch.tensor([[[1.0, 0, 0, 0], [0, 0, -1, -D], [0, 1, 0, 0]]])
    viewmats = viewmats_from_nerfstudio(camera_to_worlds)
    points = torch.tensor([[0.0, 0, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1]])
    expected = torch.tensor([[0.0, 0, D, 1], [0.5, 0, D, 1], [0, -0.5, D, 1]])
    assert torch.equal(points @ viewmats[0].T, expected)
    one = torch.ones(1)
    K = intrinsics_matrices(1.2 * 100 * one, 1.2 * 100 * one, 50 * one, 40 * one)
    u, v, w = K[0] @ expected[1, :3]
    assert (float(u / w), float(v / w)) == pytest.approx((50 + 0.5 * 50, 40), abs=1e-4)  # 2 units span 100 pixels


def test_viewmats_invert_nerfstudio_matrices() -> None:
    rotations = rotation_matrices(torch.randn(5, 4, dtype=torch.float64))
    camera_to_worlds = torch.cat([rotations, torch.randn(5, 3, 1, dtype=torch.float64)], -1)
    viewmats = viewmats_from_nerfstudio(camera_to_worlds)
    flip = torch.diag(torch.tensor([1.0, -1, -1, 1], dtype=torch.float64))
    full = torch.cat([camera_to_worlds, torch.tensor([0.0, 0, 0, 1]).double().expand(5, 1, 4)], 1)
    assert (viewmats @ full @ flip - torch.eye(4).double()).abs().max() <= 1e-14
