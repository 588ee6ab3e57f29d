"""Reading q off pictures: Gauss-Newton on the pixels with appearance and motion map held fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import avg_pool2d

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training.appearance import tensor_frames
from lagsplat_ns.training.compositing import render_over

_PROBE_PX = 0.4
"""displacement of the moving primitives, root mean square, used for the derivative of the pictures"""
_TOLERATED = 0.1
"""picture difference at which a pixel's say is halved"""
_CHUNK = 24


@dataclass(frozen=True)
class Measurement:
    """q [F, d] per frame and its standard deviation [F, d] as the pixels' residuals imply it."""

    q: Float[np.ndarray, "F d"]
    deviation: Float[np.ndarray, "F d"]


def _probe_steps(scene: LatentScene, camera: FilmingCamera, q: Tensor) -> Tensor:
    """Steps in q [d] that move the primitives by `_PROBE_PX`."""
    jacobian = scene.jacobian(q)[: scene.num_moving]
    speed = (scene.mass_weights()[:, None] * jacobian.square().sum(1)).sum(0).sqrt()
    return _PROBE_PX * camera.pixel_size / speed.clamp(min=1e-9)


def _smooth(pictures: Tensor, width: int) -> Tensor:
    if width <= 1:
        return pictures
    return avg_pool2d(pictures.movedim(-1, 1), width, 1, width // 2, count_include_pad=False).movedim(1, -1)


def _normal_equations(
    scene: LatentScene, camera: FilmingCamera, background: Tensor, frames: Tensor, q: Tensor, steps: Tensor, blur: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Information [F, d, d], gradient [F, d] and mean weighted squared residual [F] of the pictures in q [F, d]."""
    num_frames, d = q.shape
    offsets = torch.cat([torch.zeros(1, d), torch.eye(d), -torch.eye(d)]).to(q) * steps
    probes = (q[:, None] + offsets).reshape(-1, d)
    pictures = _smooth(render_over(scene, camera, background, scene.moving(probes)), blur)
    pictures = pictures.reshape(num_frames, 2 * d + 1, *pictures.shape[1:])
    slope = (pictures[:, 1 : d + 1] - pictures[:, d + 1 :]) / (2 * steps[:, None, None, None])
    residual = pictures[:, 0] - _smooth(frames, blur)
    touched = slope.abs().amax((1, -1), keepdim=False) > 1e-3 * slope.abs().amax()
    weight = touched[..., None] / (1.0 + (residual / _TOLERATED).square())
    information = torch.einsum("fihwc,fjhwc,fhwc->fij", slope, slope, weight)
    gradient = torch.einsum("fihwc,fhwc,fhwc->fi", slope, residual, weight)
    power = (weight * residual.square()).sum((1, 2, 3)) / weight.sum((1, 2, 3)).clamp(min=1.0)
    return information, gradient, power


def _damped(information: Float[Tensor, "F d d"], share: float) -> Float[Tensor, "F d d"]:
    """The information with a share of its mean diagonal added, so that coordinates nobody sees stay where they are."""
    unit = torch.eye(information.shape[-1], device=information.device)
    return information + (share * information.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] + 1e-9) * unit


def _move(damped: Float[Tensor, "F d d"], gradient: Float[Tensor, "F d"], steps: Tensor) -> Float[Tensor, "F d"]:
    """The Gauss-Newton step, at most about three pixels at a time."""
    limit = 8.0 * steps
    return torch.linalg.solve(damped, gradient[..., None])[..., 0].clamp(-limit, limit)


@torch.no_grad()
def measure(
    scene: LatentScene,
    camera: FilmingCamera,
    background: Float[Tensor, "H W 3"],
    frames: UInt8[np.ndarray, "F H W 3"],
    start: Float[np.ndarray, "F d"],
    iterations: int = 3,
    blurs: tuple[int, ...] = (1,),
    report: Callable[[int], None] | None = None,
) -> Measurement:
    """q of every frame, started from a guess that is right to a few pixels; frames do not talk to each other."""
    device = background.device
    q = torch.from_numpy(np.ascontiguousarray(start)).float().to(device)
    deviation = torch.zeros_like(q)
    for lo in range(0, len(q), _CHUNK):
        part = slice(lo, min(lo + _CHUNK, len(q)))
        pictures = tensor_frames(frames[part], device)
        steps = _probe_steps(scene, camera, q[part].median(0).values)
        for blur in blurs:
            for _ in range(iterations):
                info, gradient, power = _normal_equations(scene, camera, background, pictures, q[part], steps, blur)
                damped = _damped(info, 1e-3)
                q[part] = q[part] - _move(damped, gradient, steps)
        inverse = torch.linalg.inv(damped)
        deviation[part] = (inverse.diagonal(dim1=-2, dim2=-1) * power[:, None]).clamp(min=0).sqrt()
        if report is not None:
            report(part.stop - part.start)
    return Measurement(q.double().cpu().numpy(), deviation.double().cpu().numpy())


@torch.no_grad()
def track(
    scene: LatentScene,
    camera: FilmingCamera,
    background: Float[Tensor, "H W 3"],
    frames: UInt8[np.ndarray, "F H W 3"],
    start: Float[np.ndarray, " d"],
    velocity: Float[np.ndarray, " d"],
    times_s: Float[np.ndarray, " F1"],
) -> Float[np.ndarray, "F d"]:
    """q of consecutive frames, each started from the two before it; for frames that no model has seen.

    times_s holds the time of `start` first, then those of the frames.
    """
    device = background.device
    found = [np.asarray(start, dtype=np.float64)]
    rate = np.asarray(velocity, dtype=np.float64)
    for k in range(len(frames)):
        gap = times_s[k + 1] - times_s[k]
        guess = torch.from_numpy(found[-1] + rate * gap).float().to(device)[None]
        picture = tensor_frames(frames[k : k + 1], device)
        steps = _probe_steps(scene, camera, guess[0])
        for blur in (5, 5, 1, 1):
            info, gradient, _ = _normal_equations(scene, camera, background, picture, guess, steps, blur)
            guess = guess - _move(_damped(info, 1e-2), gradient, steps)
        found.append(guess[0].double().cpu().numpy())
        rate = (found[-1] - found[-2]) / gap
    return np.stack(found[1:])


@torch.no_grad()
def find_again(
    scene: LatentScene,
    camera: FilmingCamera,
    background: Float[Tensor, "H W 3"],
    frames: UInt8[np.ndarray, "F H W 3"],
    times_s: Float[np.ndarray, " T"],
    known: Float[np.ndarray, "K d"],
) -> Float[np.ndarray, "F d"]:
    """q of all frames of another clip of the same thing, from where it was in the first one (`known`).

    The first frame is compared with pictures of known states; the best is refined, and followed through the clip.
    """
    device = background.device
    picks = known[np.unique(np.linspace(0, len(known) - 1, 60).astype(int))]
    picture = _smooth(tensor_frames(frames[:1], device), 9)
    guesses = torch.from_numpy(picks).float().to(device)
    shown = torch.cat([render_over(scene, camera, background, scene.moving(part)) for part in guesses.split(_CHUNK)])
    errors = (_smooth(shown, 9) - picture).square().mean((1, 2, 3))
    best = picks[int(errors.argmin())]
    still = np.zeros_like(best)
    first = track(scene, camera, background, np.repeat(frames[:1], 3, 0), best, still, np.arange(4.0))[-1]
    ahead = track(scene, camera, background, frames[1:], first, still, times_s[: len(frames)])
    return np.concatenate([first[None], ahead])
