"""Random scenes for tests and benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomScene:
    """The arguments of `rasterization`: Gaussians in front of C cameras that stand on a small arc around them."""

    means: Tensor  # [N, 3] or [C, N, 3]
    quats: Tensor  # [N, 4] or [C, N, 4]
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N]
    colors: Tensor  # [N, D]
    viewmats: Tensor  # [C, 4, 4]
    Ks: Tensor  # [C, 3, 3]
    width: int
    height: int

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `rasterization`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, *args: Any) -> RandomScene:
        """The scene with every tensor's device or type changed."""
        return replace(
            self, **{n: value.to(*args) for n, value in self.arguments().items() if isinstance(value, Tensor)}
        )


def random_scene(
    num_gaussians: int,
    width: int,
    height: int,
    *,
    num_cameras: int = 1,
    num_channels: int = 3,
    seed: int = 0,
    smallest_px: float = 2.0,
    largest_px: float = 12.0,
    fraction_behind: float = 0.0,
    is_moving: bool = False,
) -> RandomScene:
    """A scene that fills the image and a little more, float32 on the CPU.

    smallest_px, largest_px: range of the 3-sigma radius, in pixels, log-uniform. fraction_behind: Gaussians behind the
    camera, or just before or beyond its near plane. is_moving: a set of means and quats for each camera, as for time
    steps.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    N, C = num_gaussians, num_cameras
    focal, distance = 1.2 * width, 4.0
    z = distance + 1.2 * (2 * uniform(N) - 1)  # [N]
    num_behind = int(fraction_behind * N)
    z[:num_behind] = 0.1 * uniform(num_behind) - 0.05
    u, v = (1.1 * uniform(N) - 0.05) * width, (1.1 * uniform(N) - 0.05) * height  # [N] pixels
    means = torch.stack([(u - width / 2) / focal * z, (v - height / 2) / focal * z, z], -1)  # [N, 3]
    radii_px = smallest_px * (largest_px / smallest_px) ** uniform(N)
    longest = radii_px / 3 * z.abs() / focal  # [N] scene units
    scales = longest[:, None] * (0.35 + 0.65 * uniform(N, 3))  # [N, 3]
    scales[torch.arange(N), torch.randint(0, 3, (N,), generator=generator)] = longest
    quats = torch.randn(N, 4, generator=generator)
    opacities = torch.sigmoid(1.5 * torch.randn(N, generator=generator))
    colors = uniform(N, num_channels)
    viewmats = torch.eye(4).repeat(C, 1, 1)  # [C, 4, 4]
    center = torch.tensor([0.0, 0.0, distance])
    for c in range(C):
        angle = 0.10 * (c - (C - 1) / 2)
        cos, sin = math.cos(angle), math.sin(angle)
        viewmats[c, :3, :3] = torch.tensor([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
        viewmats[c, :3, 3] = center - viewmats[c, :3, :3] @ center
    Ks = torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]]).repeat(C, 1, 1)
    if is_moving:
        means = means + 0.02 * torch.randn(C, N, 3, generator=generator)  # [C, N, 3]
        quats = quats + 0.1 * torch.randn(C, N, 4, generator=generator)  # [C, N, 4]
    return RandomScene(means, quats, scales, opacities, colors, viewmats, Ks, width, height)
