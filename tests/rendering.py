"""What the rendering tests share: a comparison of `rasterization` with the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from lagsplat_ns.render import rasterize, reference
from lagsplat_ns.render.rasterize import rasterization

DIFFERENTIABLE = ("means", "quats", "scales", "opacities", "colors", "viewmats", "backgrounds")


@dataclass(frozen=True)
class Difference:
    """rasterization against the reference: largest absolute difference of pixels, gradients relative to their norm."""

    colors: float
    alphas: float
    num_wrong_radii: int
    gradients: dict[str, float]


def use_radii_of(monkeypatch: pytest.MonkeyPatch, opacity_aware: bool) -> None:
    """Renders by the rules of gsplat 1.5 (opacity_aware) or 1.4, whichever is installed."""
    monkeypatch.setattr(rasterize, "radii_are_opacity_aware", lambda: opacity_aware)


def render_with_gradients(
    function: Any, arguments: dict[str, Any], dtype: torch.dtype, is_compared: Tensor | None = None
) -> tuple[Any, dict[str, Tensor]]:
    """(colors, alphas, meta), and gradients of a fixed random weighting of colors and alphas in the compared pixels."""
    given = {k: v.detach().to(dtype) if isinstance(v, Tensor) else v for k, v in arguments.items()}
    leaves = {k: given[k].requires_grad_() for k in DIFFERENTIABLE if isinstance(given.get(k), Tensor)}
    colors, alphas, meta = function(**given)
    meta["means2d"].retain_grad()
    torch.autograd.backward([colors, alphas], list(weights_like(colors, alphas, is_compared)))
    gradients = {k: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for k, leaf in leaves.items()}
    return (colors.detach(), alphas.detach(), meta), gradients | {"means2d": meta["means2d"].grad}


def weights_like(colors: Tensor, alphas: Tensor, is_compared: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The fixed random weighting: the gradients in colors and alphas, zero in pixels that are not compared."""
    generator = torch.Generator().manual_seed(7)
    v_colors = torch.randn(colors.shape, generator=generator, dtype=torch.float64)
    v_alphas = torch.randn(alphas.shape, generator=generator, dtype=torch.float64)
    if is_compared is not None:
        v_colors, v_alphas = v_colors * is_compared[..., None], v_alphas * is_compared[..., None]
    return v_colors.to(colors.dtype), v_alphas.to(alphas.dtype)


def difference_to_reference(arguments: dict[str, Any], opacity_aware: bool) -> Difference:
    """Renders the same arguments in float32 and, by the reference, in float64; see `use_radii_of`.

    Pixels within round-off of a threshold (a jump of the image, by definition) are left out; they must be few.
    """

    def plain(**given: Any) -> Any:
        return reference.rasterization(**given, opacity_aware=opacity_aware)

    with torch.no_grad():
        doubles = {k: v.double() if isinstance(v, Tensor) else v for k, v in arguments.items()}
        is_compared = ~plain(**doubles)[2]["ambiguous"]
    assert is_compared.double().mean() >= 0.95
    (colors, alphas, meta), gradients = render_with_gradients(rasterization, arguments, torch.float32, is_compared)
    (colors64, alphas64, meta64), gradients64 = render_with_gradients(plain, arguments, torch.float64, is_compared)
    radii64 = meta64["radii"] if opacity_aware else meta64["radii"][..., 0]
    assert meta["radii"].shape == radii64.shape
    assert meta["radii"].dtype == torch.int32
    assert (colors - colors64).abs().max() <= 0.1  # even a pixel at a threshold changes little
    relative = {
        k: float((gradients[k] - gradients64[k]).norm() / gradients64[k].norm().clamp(min=1e-6)) for k in gradients64
    }
    return Difference(
        colors=float((is_compared[..., None] * (colors - colors64)).abs().max()),
        alphas=float((is_compared[..., None] * (alphas - alphas64)).abs().max()),
        num_wrong_radii=int((meta["radii"] != radii64).sum()),
        gradients=relative,
    )
