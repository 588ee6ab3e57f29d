"""Rasterization of Gaussians with the meaning of `gsplat.rasterization`, on CUDA and on the CPU.

This is the only file that imports gsplat. Its kernels are never asked for off a GPU: where a CUDA compiler is installed
without a GPU, asking alone would compile them for an hour.
"""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.render.cpu.functions import Composite, Composition, Project
from lagsplat_ns.render.cpu.lanes import CHANNELS, TILE
from lagsplat_ns.render.cpu.stages import Camera
from lagsplat_ns.render.spherical_harmonics import MAX_DEGREE, colors_of_harmonics

__all__ = ["gsplat_is_usable", "radii_are_opacity_aware", "rasterization"]

RenderMode = Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"]
_NAMES: tuple[str, ...] = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")


@functools.cache
def gsplat_is_usable() -> bool:
    """Whether gsplat's CUDA kernels exist here. Only on a machine with CUDA is gsplat asked (it may compile them)."""
    if not torch.cuda.is_available():
        return False
    try:
        from gsplat.cuda._backend import _C  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError:
        return False
    return _C is not None


@functools.cache
def radii_are_opacity_aware() -> bool:
    """Whether the installed gsplat's radii are [C, N, 2] and depend on opacity (1.5), or [C, N] and do not (1.4)."""
    try:
        version = importlib.metadata.version("gsplat")
    except importlib.metadata.PackageNotFoundError:
        return False
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (1, 5)


def rasterization(
    means: Float[Tensor, "*sets N 3"],
    quats: Float[Tensor, "*quat_sets N 4"],
    scales: Float[Tensor, "*scale_sets N 3"],
    opacities: Float[Tensor, "*opacity_sets N"],
    colors: Float[Tensor, "*colors D"],
    viewmats: Float[Tensor, "C 4 4"],
    Ks: Float[Tensor, "C 3 3"],
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    packed: bool = False,
    tile_size: int = TILE,
    backgrounds: Float[Tensor, "C B"] | None = None,
    render_mode: RenderMode = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    rasterize_mode: Literal["classic", "antialiased"] = "classic",
    *,
    backend: Literal["auto", "gsplat", "cpu"] = "auto",
) -> tuple[Float[Tensor, "C H W X"], Float[Tensor, "C H W 1"], dict[str, Any]]:
    """Images of Gaussians: colors [C, H, W, X], alphas [C, H, W, 1] and gsplat's dictionary of intermediate results.

    Everything means what it means in gsplat: means, scales in scene units; quats wxyz of any length; opacities in
    [0, 1]; colors [N, D] or [C, N, D], or with `sh_degree` harmonics [N, K, 3] or [C, N, K, 3]; viewmats
    camera_from_world; Ks, radii and means2d in pixels. X is D, 1 ("D": summed depth, "ED": expected depth) or D + 1.

    Beyond gsplat: means [C, N, 3] is a Gaussian set for each camera (a time step each); quats, scales and opacities may
    then have the leading C too, or be shared.

    Differentiable in means, quats, scales, opacities, colors, viewmats and backgrounds. `meta["means2d"]` lies between
    two steps of autograd: call `retain_grad` on it; with `absgrad` it gets the attribute `absgrad` in the backward
    pass. On the CPU `meta`'s lists of tiles leave out those where a Gaussian stays below alpha = 1/255. On CUDA with a
    set per camera, `meta["sets"]` holds gsplat's dictionaries, whose `means2d` are the ones that get gradients.

    backend: "auto" takes gsplat for CUDA tensors and the CPU backend otherwise.

    Raises: NotImplementedError for `packed`, `sparse_grad` and, on the CPU, other tile sizes and `absgrad` with more
    than four channels; ValueError and TypeError for shapes, types and modes that do not fit.
    Source: gsplat 1.4.0 and 1.5.3, `rendering.py` and its CUDA kernels.
    """
    if packed or sparse_grad:
        name = "packed" if packed else "sparse_grad"
        raise NotImplementedError(
            f"`{name}` must be False, but is True.\n  Only dense results are implemented: pass {name}=False."
        )
    tensors = dict(zip(_NAMES, (means, quats, scales, opacities, colors, viewmats, Ks)))
    _check_arguments(tensors, width, height, sh_degree, backgrounds, render_mode, rasterize_mode)
    settings = {
        "near_plane": near_plane,
        "far_plane": far_plane,
        "radius_clip": radius_clip,
        "eps2d": eps2d,
        "sh_degree": sh_degree,
        "tile_size": tile_size,
        "render_mode": render_mode,
        "absgrad": absgrad,
        "rasterize_mode": rasterize_mode,
    }
    if _takes_gsplat(backend, means.device):
        return _rasterize_with_gsplat(tensors, width, height, backgrounds, settings)
    if means.device.type != "cpu":
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
        backgrounds = None if backgrounds is None else backgrounds.cpu()
        render_colors, render_alphas, meta = _rasterize_on_cpu(tensors, width, height, backgrounds, settings)
        return render_colors.to(means.device), render_alphas.to(means.device), meta
    return _rasterize_on_cpu(tensors, width, height, backgrounds, settings)


def _takes_gsplat(backend: str, device: torch.device) -> bool:
    if backend == "cpu":
        return False
    if backend == "gsplat":
        if device.type != "cuda" or not gsplat_is_usable():
            raise RuntimeError(
                f'backend="gsplat" needs CUDA tensors and gsplat\'s CUDA kernels, but the tensors are on {device} and '
                f'the kernels are {"here" if gsplat_is_usable() else "missing"}.\n  Pass backend="auto", or move '
                f'tensors to "cuda" and install a gsplat wheel built for this torch and CUDA: https://docs.gsplat.studio/whl'
            )
        return True
    if backend != "auto":
        raise ValueError(
            f'`backend` must be "auto", "gsplat" or "cpu", but is {backend!r}.\n  Leave it out for "auto".'
        )
    if device.type == "cuda" and not gsplat_is_usable():
        warnings.warn(
            "CUDA tensors are rendered by gsplat, but its CUDA kernels are missing here; they are rendered on the CPU."
            "\n  Install a gsplat wheel built for this torch and CUDA (https://docs.gsplat.studio/whl), or train on "
            "the CPU.",
            stacklevel=3,
        )
        return False
    return device.type == "cuda"


def _rasterize_on_cpu(
    tensors: dict[str, Tensor], width: int, height: int, backgrounds: Tensor | None, settings: dict[str, Any]
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    means, quats, scales, opacities, colors, viewmats, Ks = (tensors[name] for name in _NAMES)
    C, N = viewmats.shape[0], means.shape[-2]
    mode: str = settings["render_mode"]
    with_colors, with_depth = mode.startswith("RGB"), mode.endswith("D")
    if settings["tile_size"] != TILE:
        raise NotImplementedError(
            f"`tile_size` must be {TILE} on the CPU, but is {settings['tile_size']}.\n  Leave the argument out."
        )
    if not with_colors:
        colors, backgrounds = means.new_empty((N, 0)), None
    elif settings["sh_degree"] is not None:
        colors = colors_of_harmonics(settings["sh_degree"], means, colors, viewmats)  # [1 or C, N, 3]
    num_channels = colors.shape[-1] + int(with_depth)
    if settings["absgrad"] and num_channels > CHANNELS:
        raise NotImplementedError(
            f"`absgrad` needs at most {CHANNELS} channels on the CPU, but there are {num_channels}.\n"
            f"  Render the other channels in a second call without absgrad."
        )
    camera = Camera(
        width,
        height,
        eps2d=settings["eps2d"],
        near_plane=settings["near_plane"],
        far_plane=settings["far_plane"],
        radius_clip=settings["radius_clip"],
        antialiased=settings["rasterize_mode"] == "antialiased",
        opacity_aware=radii_are_opacity_aware(),
    )
    radii, means2d, depths, conics, opacities = Project.apply(  # [C, N, ...]
        means, quats, scales, opacities, viewmats, Ks, camera
    )
    composition = Composition(camera, radii, with_depth, mode.endswith("ED"), settings["absgrad"])
    render_colors, render_alphas = Composite.apply(means2d, conics, colors, opacities, depths, backgrounds, composition)
    tiles = composition.tiles
    assert tiles is not None
    meta = {
        "camera_ids": None,
        "gaussian_ids": None,
        "radii": radii if camera.opacity_aware else radii[..., 0],  # [C, N, 2] or [C, N]
        "means2d": means2d,  # [C, N, 2]
        "depths": depths,  # [C, N]
        "conics": conics,  # [C, N, 3]
        "opacities": opacities,  # [C, N]
        "tile_width": camera.tiles_x,
        "tile_height": camera.tiles_y,
        "tiles_per_gauss": torch.from_numpy(tiles.tiles_per_gauss),  # [C, N]
        "isect_ids": torch.from_numpy(tiles.isect_ids),  # [I]
        "flatten_ids": torch.from_numpy(tiles.gaussian_ids),  # [I]
        "isect_offsets": torch.from_numpy(tiles.offsets[:-1].reshape(C, camera.tiles_y, camera.tiles_x)),
        "width": width,
        "height": height,
        "tile_size": TILE,
        "n_cameras": C,
    }
    return render_colors, render_alphas, meta


def _call_gsplat(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Any]]:
    from gsplat import rasterization as gsplat_rasterization

    return gsplat_rasterization(*args, packed=False, **kwargs)


def _rasterize_with_gsplat(
    tensors: dict[str, Tensor], width: int, height: int, backgrounds: Tensor | None, settings: dict[str, Any]
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    shared_dims = {"means": 2, "quats": 2, "scales": 2, "opacities": 1}
    is_batched = any(tensors[name].dim() > dims for name, dims in shared_dims.items())
    if not is_batched:
        return _call_gsplat(*tensors.values(), width, height, backgrounds=backgrounds, **settings)
    shared_dims["colors"] = 2 if settings["sh_degree"] is None else 3
    results = []
    for c in range(tensors["viewmats"].shape[0]):  # gsplat takes one set of Gaussians per call
        one = {n: tensor[c] if tensor.dim() > shared_dims.get(n, 3) else tensor for n, tensor in tensors.items()}
        one["viewmats"], one["Ks"] = tensors["viewmats"][c : c + 1], tensors["Ks"][c : c + 1]
        background = None if backgrounds is None else backgrounds[c : c + 1]
        results.append(_call_gsplat(*one.values(), width, height, backgrounds=background, **settings))
    colors, alphas, metas = zip(*results)
    meta = dict(metas[0])
    for key in ("radii", "means2d", "depths", "conics", "opacities", "tiles_per_gauss"):
        meta[key] = torch.cat([m[key] for m in metas])  # [C, N, ...]
    for key in ("isect_ids", "flatten_ids", "isect_offsets"):  # numbered within each set
        meta[key] = None
    meta["n_cameras"], meta["sets"] = len(metas), list(metas)
    return torch.cat(colors), torch.cat(alphas), meta


def _check_arguments(
    tensors: dict[str, Tensor],
    width: int,
    height: int,
    sh_degree: int | None,
    backgrounds: Tensor | None,
    render_mode: str,
    rasterize_mode: str,
) -> None:
    """Raises what `rasterization` promises for arguments that do not fit."""
    C, N = tensors["viewmats"].shape[0], tensors["means"].shape[-2] if tensors["means"].dim() > 1 else -1
    last: tuple[int, ...] = tuple(tensors["colors"].shape[-1:])
    if sh_degree is not None:
        last = (tensors["colors"].shape[-2] if tensors["colors"].dim() > 1 else -1, 3)
    wanted = {
        "means": (N, 3),
        "quats": (N, 4),
        "scales": (N, 3),
        "opacities": (N,),
        "colors": (N, *last),
        "viewmats": (C, 4, 4),
        "Ks": (C, 3, 3),
    }
    named = {**tensors} if backgrounds is None else {**tensors, "backgrounds": backgrounds}
    for name, tensor in named.items():
        if tensor.dtype != torch.float32:
            raise TypeError(f"`{name}` must be float32, but is {tensor.dtype}.\n  Pass {name}.float().")
        if tensor.device != tensors["means"].device:
            raise ValueError(
                f"All tensors must be on one device, but `means` is on {tensors['means'].device} and `{name}` on "
                f"{tensor.device}.\n  Pass {name}.to(means.device)."
            )
    for name, shape in wanted.items():
        came = tuple(tensors[name].shape)
        allowed = [shape] if name in ("viewmats", "Ks") else [shape, (C, *shape)]
        if came not in allowed:
            text = " or ".join(str(list(a)).replace("-1", "N") for a in allowed)
            raise ValueError(
                f"`{name}` must have the shape {text}, but has {list(came)}.\n"
                f"  N = {N} comes from `means` and C = {C} from `viewmats`: correct these or `{name}`."
            )
    if sh_degree is not None and not (0 <= sh_degree <= MAX_DEGREE and (sh_degree + 1) ** 2 <= last[0]):
        raise ValueError(
            f"`sh_degree` must be 0 to {MAX_DEGREE} with (sh_degree + 1)² <= K, but is {sh_degree} with "
            f"K = {last[0]}.\n  Lower it, or pass colors with {(sh_degree + 1) ** 2} coefficients."
        )
    if backgrounds is not None and render_mode.startswith("RGB"):
        shape = [C, 3 if sh_degree is not None else tensors["colors"].shape[-1]]
        if list(backgrounds.shape) != shape:
            raise ValueError(
                f"`backgrounds` must have the shape {shape}, but has {list(backgrounds.shape)}.\n"
                f"  Pass a row for each camera, without the depth channel: backgrounds.expand({shape[0]}, {shape[1]})."
            )
    if width < 1 or height < 1:
        raise ValueError(
            f"An image must have at least 1 x 1 pixels, but {width} x {height} was asked.\n  Raise the size."
        )
    for name, value, modes in (
        ("render_mode", render_mode, ("RGB", "D", "ED", "RGB+D", "RGB+ED")),
        ("rasterize_mode", rasterize_mode, ("classic", "antialiased")),
    ):
        if value not in modes:
            raise ValueError(f"`{name}` must be one of {', '.join(modes)}, but is {value!r}.\n  Choose one of these.")
