"""Pinned renderings: values that are known in closed form, and a small image that must never drift."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.scenes import random_scene
from tests.rendering import use_radii_of


def one_gaussian(**kwargs: Any) -> dict[str, Any]:
    """A sphere of standard deviation 0.1 at depth 2, in the middle of the pixel (8, 8) of a 17 x 17 image."""
    return {
        "means": torch.tensor([[0.0, 0.0, 2.0]]),
        "quats": torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        "scales": torch.full((1, 3), 0.1),
        "opacities": torch.tensor([0.8]),
        "colors": torch.tensor([[1.0, 0.5, 0.25]]),
        "viewmats": torch.eye(4)[None],
        "Ks": torch.tensor([[[40.0, 0, 8.5], [0, 40.0, 8.5], [0, 0, 1]]]),
        "width": 17,
        "height": 17,
    } | kwargs


def test_one_gaussian_is_a_gaussian() -> None:
    colors, alphas, meta = rasterization(**one_gaussian(), render_mode="RGB+ED")
    variance = (40 * 0.1 / 2) ** 2 + 0.3  # pixels²: projected, and gsplat's eps2d
    offsets = torch.arange(17, dtype=torch.float64) - 8
    expected = 0.8 * torch.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * variance))
    expected = torch.where(expected >= 1 / 255, expected, 0)
    assert (alphas[0, :, :, 0] - expected).abs().max() <= 1e-6
    assert (colors[0, :, :, :3] - expected[..., None] * torch.tensor([1, 0.5, 0.25])).abs().max() <= 1e-6
    # alpha = 1 - T is round-off relative to 1, and the expected depth is divided by it
    assert (colors[0, :, :, 3] - 2.0 * (expected > 0)).abs().max() <= 4e-5
    assert meta["means2d"].tolist() == [[[8.5, 8.5]]]
    assert meta["depths"].tolist() == [[2.0]]
    assert meta["conics"][0, 0].tolist() == pytest.approx([1 / variance, 0, 1 / variance], abs=1e-7)


@pytest.mark.parametrize("opacity_aware", [False, True])
def test_radii_of_both_gsplat_versions(opacity_aware: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, opacity_aware)
    _, _, meta = rasterization(**one_gaussian())
    variance = 4.3
    if opacity_aware:
        expected = math.ceil(min(3.33, math.sqrt(2 * math.log(255 * 0.8))) * math.sqrt(variance))
        assert meta["radii"].tolist() == [[[expected, expected]]]
    else:
        expected = math.ceil(3 * math.sqrt(variance + math.sqrt(0.01**0.5 * 0.1)))  # sqrt(max(0.01, 0)) = 0.1
        assert meta["radii"].tolist() == [[expected]]
    assert meta["radii"].dtype == torch.int32


def test_antialiasing_keeps_the_light_of_a_small_gaussian() -> None:
    small = one_gaussian(scales=torch.full((1, 3), 0.01), opacities=torch.tensor([1.0]))
    _, alphas, meta = rasterization(**small, rasterize_mode="antialiased")
    variance = (40 * 0.01 / 2) ** 2
    compensation = variance / (variance + 0.3)  # sqrt(det / det') of a round Gaussian
    assert meta["opacities"].item() == pytest.approx(compensation, rel=1e-5)
    assert alphas[0, 8, 8, 0].item() == pytest.approx(compensation, rel=1e-5)


def test_alpha_is_at_most_0_999_and_compositing_stops() -> None:
    means = torch.tensor([[0.0, 0, 2], [0, 0, 3], [0, 0, 4]])
    wall = one_gaussian(
        means=means, quats=torch.ones(3, 4), scales=torch.ones(3, 3), opacities=torch.ones(3), colors=torch.eye(3)
    )
    colors, alphas, _ = rasterization(**wall)
    # After the first T = 1e-3; the second would bring 1e-6 <= 1e-4: stop before it
    assert colors[0, 8, 8].tolist() == pytest.approx([0.999, 0, 0], abs=1e-7)
    assert alphas[0, 8, 8, 0].item() == pytest.approx(0.999, abs=1e-7)


def test_depth_modes_of_two_layers() -> None:
    two = one_gaussian(
        means=torch.tensor([[0.0, 0, 4], [0, 0, 2]]),
        quats=torch.ones(2, 4),
        scales=torch.full((2, 3), 100.0),
        opacities=torch.tensor([0.5, 0.25]),
        colors=torch.ones(2, 3),
    )
    summed = 0.25 * 2 + 0.75 * 0.5 * 4
    alpha = 0.25 + 0.75 * 0.5
    for mode, expected in (("D", [summed]), ("ED", [summed / alpha]), ("RGB+D", [alpha, alpha, alpha, summed])):
        colors, _, _ = rasterization(**(two | {"render_mode": mode}))
        assert colors[0, 8, 8].tolist() == pytest.approx(expected, abs=2e-4)


def test_meta_has_the_keys_of_gsplat_1_4() -> None:
    _, _, meta = rasterization(**random_scene(50, 40, 30, num_cameras=2).arguments())
    assert set(meta) == {
        *("camera_ids", "gaussian_ids", "radii", "means2d", "depths", "conics", "opacities", "tile_width"),
        *("tile_height", "tiles_per_gauss", "isect_ids", "flatten_ids", "isect_offsets", "width", "height"),
        *("tile_size", "n_cameras"),
    }
    assert (meta["tile_width"], meta["tile_height"]) == (3, 2)
    assert meta["isect_offsets"].shape == (2, 2, 3)
    ids = meta["isect_ids"]
    assert torch.equal(ids, ids.sort().values)  # by tile, then by depth
    assert torch.equal(torch.bincount(meta["flatten_ids"], minlength=100), meta["tiles_per_gauss"].flatten().long())
    depths = (ids & 0xFFFFFFFF).int().view(torch.float32)
    assert torch.equal(depths, meta["depths"].flatten()[meta["flatten_ids"].long()])


def test_a_small_image_never_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_radii_of(monkeypatch, False)
    scene = random_scene(80, 20, 12, seed=5, largest_px=6.0)
    colors, alphas, _ = rasterization(**scene.arguments(), backgrounds=torch.tensor([[0.2, 0.4, 0.6]]))
    assert colors[0, ::5, ::6].flatten().tolist() == pytest.approx(GOLDEN_COLORS, abs=2e-5)
    assert alphas[0, ::5, ::6].flatten().tolist() == pytest.approx(GOLDEN_ALPHAS, abs=2e-5)


# From the float64 reference
GOLDEN_COLORS = [
    0.348097,
    0.588903,
    0.500407,
    0.437699,
    0.431937,
    0.506642,
    0.735874,
    0.420646,
    0.745043,
    0.476737,
    0.601657,
    0.448755,
    0.384923,
    0.380728,
    0.649817,
    0.154429,
    0.675559,
    0.633603,
    0.298206,
    0.375992,
    0.33699,
    0.3984,
    0.497379,
    0.512776,
    0.281661,
    0.4805,
    0.493485,
    0.173582,
    0.631895,
    0.490222,
    0.359742,
    0.334478,
    0.498156,
    0.243376,
    0.653436,
    0.519144,
]
GOLDEN_ALPHAS = [
    0.79636,
    0.95606,
    0.798355,
    0.671072,
    0.605118,
    0.876065,
    0.654836,
    0.562066,
    0.320726,
    0.755927,
    0.912103,
    0.532501,
]
