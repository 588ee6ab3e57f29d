"""Images and all gradients of the CPU backend against the float64 reference, on random scenes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from lagsplat_ns.render import reference
from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.scenes import random_scene
from lagsplat_ns.render.vectorized import rasterize_vectorized
from tests.rendering import difference_to_reference, render_with_gradients, use_radii_of, weights_like

MAX_COLOR_ERROR = 3e-5  # depths are around 4, so that their pixels carry most of it
MAX_ALPHA_ERROR = 1e-5
MAX_GRADIENT_ERROR = 2e-5


def scene_arguments(num_cameras: int = 2, is_moving: bool = False, **kwargs: Any) -> dict[str, Any]:
    """300 Gaussians, 5 % of them around the near plane, in images whose sides are no multiples of 16."""
    scene = random_scene(300, 52, 38, num_cameras=num_cameras, is_moving=is_moving, fraction_behind=0.05, **kwargs)
    return scene.arguments()


def assert_agrees(arguments: dict[str, Any], opacity_aware: bool) -> None:
    difference = difference_to_reference(arguments, opacity_aware)
    assert difference.num_wrong_radii == 0
    assert difference.colors <= MAX_COLOR_ERROR
    assert difference.alphas <= MAX_ALPHA_ERROR
    assert {k: v for k, v in difference.gradients.items() if not v <= MAX_GRADIENT_ERROR} == {}


@pytest.mark.parametrize("opacity_aware", [False, True], ids=["gsplat1.4", "gsplat1.5"])
@pytest.mark.parametrize("rasterize_mode", ["classic", "antialiased"])
@pytest.mark.parametrize("render_mode", ["RGB", "D", "ED", "RGB+D", "RGB+ED"])
def test_every_mode_agrees_with_the_reference(
    render_mode: str, rasterize_mode: str, opacity_aware: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_radii_of(monkeypatch, opacity_aware)
    arguments = scene_arguments() | {"render_mode": render_mode, "rasterize_mode": rasterize_mode}
    arguments["backgrounds"] = torch.rand(2, 3)
    assert_agrees(arguments, opacity_aware)


@pytest.mark.parametrize("num_channels", [1, 2, 4, 5, 9])
@pytest.mark.parametrize("render_mode", ["RGB", "RGB+ED"])
def test_any_number_of_channels(num_channels: int, render_mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    arguments = scene_arguments(num_channels=num_channels) | {"render_mode": render_mode}
    assert_agrees(arguments | {"backgrounds": torch.rand(2, num_channels)}, False)


@pytest.mark.parametrize("sh_degree", [0, 1, 2, 3, 4])
def test_spherical_harmonics(sh_degree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    arguments = scene_arguments() | {"sh_degree": sh_degree}
    arguments["colors"] = 0.3 * torch.randn(300, 25, 3)
    assert_agrees(arguments, False)


def test_colors_of_each_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    assert_agrees(scene_arguments() | {"colors": torch.rand(2, 300, 3)}, False)


@pytest.mark.parametrize("are_shared", list(itertools.product([False, True], repeat=2)))
def test_a_set_for_each_camera(are_shared: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    arguments = scene_arguments(num_cameras=3, is_moving=True) | {"render_mode": "RGB+ED"}
    if not are_shared[0]:
        arguments["scales"] = arguments["scales"] * (1 + torch.rand(3, 300, 3))
    if not are_shared[1]:
        arguments["opacities"] = torch.rand(3, 300)
        arguments["rasterize_mode"] = "antialiased"
    assert_agrees(arguments, False)


def test_a_batch_of_time_steps_equals_a_loop() -> None:
    arguments = random_scene(400, 50, 40, num_cameras=4, is_moving=True).arguments()
    (colors, alphas, _), gradients = render_with_gradients(rasterization, arguments, torch.float32)
    for c in range(4):
        one = arguments | {"means": arguments["means"][c], "quats": arguments["quats"][c]}
        one["viewmats"], one["Ks"] = arguments["viewmats"][c : c + 1], arguments["Ks"][c : c + 1]
        colors_c, alphas_c, _ = rasterization(**one)
        assert torch.equal(colors[c : c + 1], colors_c.detach())
        assert torch.equal(alphas[c : c + 1], alphas_c.detach())
    total = {k: torch.zeros_like(gradients[k]) for k in ("scales", "opacities", "colors")}
    v_colors, v_alphas = weights_like(colors, alphas)
    for c in range(4):
        one = arguments | {"means": arguments["means"][c], "quats": arguments["quats"][c]}
        one["viewmats"], one["Ks"] = arguments["viewmats"][c : c + 1], arguments["Ks"][c : c + 1]
        leaves = {k: one[k].detach().clone().requires_grad_() for k in ("means", "quats", *total)}
        colors_c, alphas_c, _ = rasterization(**(one | leaves))
        torch.autograd.backward([colors_c, alphas_c], [v_colors[c : c + 1], v_alphas[c : c + 1]])
        for k in ("means", "quats"):
            assert torch.equal(gradients[k][c], leaves[k].grad)
        for k in total:
            total[k] += leaves[k].grad
    for k in total:
        assert (gradients[k] - total[k]).norm() <= 1e-6 * total[k].norm()


def test_the_reference_passes_gradcheck() -> None:
    scene = random_scene(6, 9, 7, num_cameras=2, smallest_px=4.0, largest_px=8.0).to(torch.float64).arguments()
    names = ("means", "quats", "scales", "opacities", "colors", "viewmats")
    scene["opacities"] = 0.3 + 0.4 * torch.rand(6, dtype=torch.float64)  # thresholds are jumps: stay below them

    def render(*tensors: torch.Tensor) -> torch.Tensor:
        given: dict[str, Any] = scene | dict(zip(names, tensors))
        colors, alphas, _ = reference.rasterization(**given, render_mode="RGB+ED", opacity_aware=True)
        return torch.cat([colors, alphas], -1)

    inputs = tuple(scene[name].clone().requires_grad_() for name in names)
    weights = torch.rand(render(*inputs).shape, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda *tensors: (weights * render(*tensors)).sum(), inputs, eps=1e-7, atol=1e-5)


def test_the_gradient_of_means2d_can_be_kept_and_absgrad_is_its_per_pixel_sum() -> None:
    arguments = scene_arguments(num_cameras=1)
    arguments["means"].requires_grad_()
    colors, _, meta = rasterization(**arguments, absgrad=True)
    meta["means2d"].retain_grad()
    total = torch.zeros_like(meta["means2d"])
    pixels = torch.randint(0, 52 * 38, (40,))
    v_colors = torch.zeros_like(colors).reshape(-1, 3)
    v_colors[pixels] = torch.randn(40, 3)
    colors.backward(v_colors.reshape(colors.shape), retain_graph=True)
    absolute = meta["means2d"].absgrad.clone()
    for pixel in pixels.unique():
        one = torch.zeros_like(v_colors)
        one[pixel] = v_colors[pixel]
        meta["means2d"].grad = None
        colors.backward(one.reshape(colors.shape), retain_graph=True)
        total += meta["means2d"].grad.abs()
    assert total.max() > 0.01
    assert (absolute - total).norm() <= 1e-5 * total.norm()


def test_no_gradients_are_made_for_what_needs_none() -> None:
    arguments = scene_arguments()
    arguments["colors"].requires_grad_()
    colors, alphas, meta = rasterization(**arguments)
    assert not meta["means2d"].requires_grad
    (colors.sum() + alphas.sum()).backward()
    assert arguments["colors"].grad is not None
    assert arguments["means"].grad is None


def test_the_vectorized_contender_renders_the_same() -> None:
    arguments = random_scene(600, 70, 52, num_cameras=2, fraction_behind=0.05).arguments()

    def plain(**given: Any) -> Any:
        return reference.rasterization(**given)

    doubles = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    is_compared = ~plain(**doubles)[2]["ambiguous"]
    (colors64, alphas64, _), gradients64 = render_with_gradients(plain, arguments, torch.float64, is_compared)
    leaves = {k: arguments[k].detach().clone().requires_grad_() for k in ("means", "quats", "scales", "colors")}
    colors, alphas = rasterize_vectorized(**(arguments | leaves))
    torch.autograd.backward([colors, alphas], list(weights_like(colors, alphas, is_compared)))
    assert (is_compared[..., None] * (colors - colors64)).abs().max() <= 1e-5
    assert (is_compared[..., None] * (alphas - alphas64)).abs().max() <= 1e-5
    for k, leaf in leaves.items():
        assert (leaf.grad - gradients64[k]).norm() <= 2e-5 * gradients64[k].norm()
