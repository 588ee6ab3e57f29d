"""The two autograd Functions of the CPU backend: Gaussians to projected Gaussians, and those to images.

They are two so that `means2d`, which lies between them, is a tensor whose gradient can be kept (densification needs
it).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lagsplat_ns.render.cpu import stages
from lagsplat_ns.render.cpu.compile import untraced


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def _sets(tensor: Tensor, num_dims: int) -> np.ndarray:
    """[S, ...] of a tensor that may lack the first axis: S = 1 for one set that all cameras see."""
    array = _array(tensor)
    return array if array.ndim == num_dims else array[None]


def _tensor(array: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(array).view(like.shape)


class Project(torch.autograd.Function):
    """radii [C, N, 2], means2d [C, N, 2], depths [C, N], conics [C, N, 3] and opacities [C, N] in C images."""

    @staticmethod
    def forward(ctx, means, quats, scales, opacities, viewmats, Ks, camera: stages.Camera):
        with untraced():
            stages.prepare()
            inputs = (
                _sets(means, 3),
                _sets(quats, 3),
                _sets(scales, 3),
                _sets(opacities, 2),
                _array(viewmats),
                _array(Ks),
            )
            projected = stages.project(*inputs, camera)
        ctx.camera, ctx.projected = camera, projected
        ctx.save_for_backward(means, quats, scales, opacities, viewmats, Ks)
        outputs = (projected.radii, projected.means2d, projected.depths, projected.conics, projected.opacities)
        radii, *others = (torch.from_numpy(array) for array in outputs)
        ctx.mark_non_differentiable(radii)
        return radii, *others

    @staticmethod
    @once_differentiable
    def backward(ctx, _v_radii, v_means2d, v_depths, v_conics, v_opacities):
        means, quats, scales, opacities, viewmats, Ks = ctx.saved_tensors
        with untraced():
            inputs = (
                _sets(means, 3),
                _sets(quats, 3),
                _sets(scales, 3),
                _sets(opacities, 2),
                _array(viewmats),
                _array(Ks),
            )
            gradients = stages.project_vjp(
                *(inputs, ctx.camera, ctx.projected),
                *(_array(v_means2d), _array(v_depths), _array(v_conics), _array(v_opacities)),
                with_view=ctx.needs_input_grad[4],
            )
        v_inputs = (_tensor(v, like) for v, like in zip(gradients, (means, quats, scales, opacities, viewmats)))
        return *v_inputs, None, None


@dataclass
class Composition:
    """What to composite, and after the forward pass the tile lists that it made."""

    camera: stages.Camera
    radii: Tensor  # [C, N, 2]
    with_depth: bool  # the depth is the last channel
    is_expected_depth: bool  # and divided by alpha
    absgrad: bool
    tiles: stages.Tiles | None = field(default=None)


class Composite(torch.autograd.Function):
    """colors [C, H, W, X] and alphas [C, H, W, 1] of projected Gaussians."""

    @staticmethod
    def forward(ctx, means2d, conics, colors, opacities, depths, backgrounds, composition: Composition):
        with untraced():
            camera = composition.camera
            projected = stages.Projected(
                radii=_array(composition.radii),
                means2d=_array(means2d),
                depths=_array(depths),
                conics=_array(conics),
                compensations=np.empty((0, 0), np.float32),
                opacities=_array(opacities),
            )
            colors_in = _sets(colors, 3)
            C, num_channels = means2d.shape[0], colors_in.shape[2] + int(composition.with_depth)
            backgrounds_in = np.empty((C, 0), np.float32) if backgrounds is None else _array(backgrounds)
            tiles = stages.bin_tiles(projected, colors_in, camera)
            image = stages.composite(
                tiles, colors_in, projected.depths, backgrounds_in, camera, num_channels, composition.is_expected_depth
            )
        composition.tiles = tiles
        render_colors, render_alphas = torch.from_numpy(image.colors), torch.from_numpy(image.alphas)
        ctx.composition, ctx.tiles = composition, tiles
        ctx.transmittances, ctx.last_ids = image.transmittances, image.last_ids
        ctx.has_backgrounds = backgrounds is not None
        ctx.save_for_backward(means2d, colors, opacities, depths, render_colors, render_alphas)
        return render_colors, render_alphas

    @staticmethod
    @once_differentiable
    def backward(ctx, v_render_colors, v_render_alphas):
        means2d, colors, opacities, depths, render_colors, render_alphas = ctx.saved_tensors
        composition: Composition = ctx.composition
        with untraced():
            image = stages.Image(_array(render_colors), _array(render_alphas), ctx.transmittances, ctx.last_ids)
            v_means2d, v_conics, v_colors, v_opacities, v_depths, v_absolute = stages.composite_vjp(
                *(ctx.tiles, _sets(colors, 3), _array(depths), _array(opacities), composition.camera, image),
                *(composition.is_expected_depth, _array(v_render_colors), _array(v_render_alphas), composition.absgrad),
            )
        if composition.absgrad:
            means2d.absgrad = torch.from_numpy(v_absolute)
        v_backgrounds = None
        if ctx.needs_input_grad[5]:
            D = v_colors.shape[2]  # the depth has no background
            v_backgrounds = torch.einsum("chwd,chw->cd", v_render_colors[..., :D], torch.from_numpy(ctx.transmittances))
        return (
            torch.from_numpy(v_means2d),
            torch.from_numpy(v_conics),
            _tensor(v_colors, colors),
            torch.from_numpy(v_opacities),
            torch.from_numpy(v_depths) if composition.with_depth else None,
            v_backgrounds,
            None,
        )
