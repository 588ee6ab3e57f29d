"""Edge cases: images and gradients of the CPU backend against the float64 reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.scenes import random_scene
from tests.rendering import difference_to_reference, use_radii_of

MAX_ERROR = 5e-6
MAX_GRADIENT_ERROR = 5e-5


def gaussians(*centers_px: tuple[float, float], depth: float = 2.0, size: tuple[int, int] = (40, 24), **kwargs: Any):
    """Arguments for Gaussians centered at given pixels, standard deviation 2 pixels unless told otherwise."""
    width, height = size
    focal, n = 50.0, len(centers_px)
    sigma_px, opacity = kwargs.pop("sigma_px", 2.0), kwargs.pop("opacity", 0.7)
    centers = torch.tensor(centers_px).reshape(n, 2)
    xy = (centers - torch.tensor([width / 2, height / 2])) * depth / focal
    return {
        "means": torch.cat([xy, torch.full((n, 1), depth)], -1),
        "quats": torch.randn(n, 4),
        "scales": sigma_px * depth / focal * (0.5 + torch.rand(n, 3)),
        "opacities": torch.full((n,), opacity),
        "colors": torch.rand(n, 3),
        "viewmats": torch.eye(4)[None],
        "Ks": torch.tensor([[[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]]]),
        "width": width,
        "height": height,
        "backgrounds": torch.rand(1, 3),
    } | kwargs


def far_behind() -> dict[str, Any]:
    return gaussians((20.0, 12.0), (10.0, 5.0), depth=2.0) | {"means": torch.tensor([[0.0, 0, -2], [0.1, 0, 0.005]])}


CASES = {
    "one": lambda: gaussians((20.3, 11.2)),
    "one exactly between pixels": lambda: gaussians((20.0, 12.0)),
    "none at all": lambda: gaussians(),
    "none visible": lambda: gaussians((500.0, 12.0), (20.0, -300.0)),
    "behind the camera": far_behind,
    "some behind": lambda: gaussians((20.0, 12.0), (10.0, 5.0)) | {"means": torch.tensor([[0.0, 0, 2], [0, 0, -2]])},
    "beyond the far plane": lambda: gaussians((20.0, 12.0), far_plane=1.5),
    "borders and corners": lambda: gaussians(
        (0.0, 0.0), (40.0, 24.0), (0.0, 24.0), (40.0, 0.0), (-1.0, 12.0), (41.0, 12.0), (20.0, -1.0), (20.0, 25.0)
    ),
    "tile borders": lambda: gaussians((16.0, 16.0), (15.99, 8.0), (32.0, 16.01), (31.5, 15.5)),
    "far outside, with the Jacobian's point kept near the image": lambda: gaussians((70.0, 12.0), sigma_px=20.0),
    "smaller than a pixel": lambda: gaussians((20.3, 11.2), (8.5, 8.5), (30.0, 20.0), sigma_px=0.02),
    "much larger than the image": lambda: gaussians((20.3, 11.2), (5.0, 5.0), sigma_px=300.0),
    "opacity 0": lambda: gaussians((20.3, 11.2), opacity=0.0),
    "opacity just under 1/255": lambda: gaussians((20.3, 11.2), opacity=0.0039),
    "opacity little over 1/255": lambda: gaussians((20.3, 11.2), (20.5, 12.5), opacity=0.0045),
    "opacity 1": lambda: gaussians((20.3, 11.2), (21.0, 12.0), (19.0, 10.0), (20.0, 11.0), opacity=1.0),
    "equal depths": lambda: gaussians(*[(18.0 + i, 12.0) for i in range(6)]),
    "no length": lambda: gaussians((20.3, 11.2)) | {"scales": torch.zeros(1, 3)},
    "long and thin": lambda: gaussians((20.3, 11.2)) | {"scales": torch.tensor([[0.5, 1e-4, 1e-4]])},
    "1 pixel": lambda: gaussians((0.3, 0.6), (0.5, 0.5), size=(1, 1)),
    "1 row": lambda: gaussians((10.3, 0.6), (30.0, 0.5), size=(37, 1)),
    "1 column": lambda: gaussians((0.3, 10.6), (0.5, 30.0), size=(1, 37)),
    "a radius clip": lambda: gaussians((20.3, 11.2), (8.0, 8.0), radius_clip=6.5),
    "near plane behind": lambda: gaussians((20.3, 11.2), near_plane=2.5),
    "a wall of opaque Gaussians": lambda: gaussians(*[(20.0 + 0.01 * i, 12.0) for i in range(60)], opacity=0.999),
}


@pytest.mark.parametrize("opacity_aware", [False, True], ids=["gsplat1.4", "gsplat1.5"])
@pytest.mark.parametrize("rasterize_mode", ["classic", "antialiased"])
@pytest.mark.parametrize("case", CASES)
def test_edge_case_agrees_with_the_reference(
    case: str, rasterize_mode: str, opacity_aware: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_radii_of(monkeypatch, opacity_aware)
    arguments = CASES[case]() | {"rasterize_mode": rasterize_mode}
    if case in ("no length", "smaller than a pixel") and rasterize_mode == "antialiased":
        # sqrt(det / det') has no derivative at det = 0, where gsplat divides by compensation + 1e-6: images only
        colors, alphas, _ = rasterization(**arguments)
        assert (alphas >= 0).all()
        assert alphas.max() <= 0.01
        assert (colors - arguments["backgrounds"]).abs().max() <= 0.01
        return
    difference = difference_to_reference(arguments, opacity_aware)
    assert difference.num_wrong_radii == 0
    assert difference.colors <= MAX_ERROR
    assert difference.alphas <= MAX_ERROR
    assert {k: v for k, v in difference.gradients.items() if not v <= MAX_GRADIENT_ERROR} == {}


def test_no_visible_gaussian_gives_the_background_and_zero_gradients() -> None:
    arguments = CASES["none visible"]()
    arguments["means"].requires_grad_()
    colors, alphas, _ = rasterization(**arguments)
    assert torch.equal(colors, arguments["backgrounds"].expand_as(colors))
    assert torch.equal(alphas, torch.zeros_like(alphas))
    colors.sum().backward()
    assert torch.equal(arguments["means"].grad, torch.zeros(2, 3))


@pytest.mark.parametrize("size", [(1, 1), (15, 17), (16, 16), (17, 15), (33, 48), (100, 3)])
def test_any_image_size(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    scene = random_scene(200, *size, num_cameras=2)
    difference = difference_to_reference(scene.arguments() | {"render_mode": "RGB+D"}, False)
    assert difference.num_wrong_radii == 0
    assert difference.colors <= 3e-5
    assert {k: v for k, v in difference.gradients.items() if not v <= MAX_GRADIENT_ERROR} == {}


@pytest.mark.parametrize("name", ["means", "quats", "scales", "opacities"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_a_broken_gaussian_harms_no_other(name: str, value: float) -> None:
    arguments = random_scene(50, 40, 30).arguments()
    without = {k: arguments[k][1:] for k in ("means", "quats", "scales", "opacities", "colors")}
    colors, alphas, _ = rasterization(**(arguments | without))
    broken = arguments[name].clone()
    broken[0] = value
    colors_with, alphas_with, meta = rasterization(**(arguments | {name: broken}))
    if name == "opacities" and value > 0:
        assert colors_with.isfinite().all()  # an opacity beyond 1 is drawn, with alpha at most 0.999
    elif meta["radii"][0, 0].max() == 0 or name == "opacities":
        assert torch.equal(colors, colors_with)
        assert torch.equal(alphas, alphas_with)
    else:
        assert alphas_with.isfinite().all()
