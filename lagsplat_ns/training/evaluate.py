"""Figures of a finished training: pictures of the training frames, forecast of the held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.training.compositing import render_scene
from lagsplat_ns.training.confidence import ClipForecast, coordinate_ranges, input_effects
from lagsplat_ns.training.losses import psnr
from lagsplat_ns.training.measure import track
from lagsplat_ns.training.measurements import Frames, check_measurements
from lagsplat_ns.training.report import Confidence, FitReport, longest_run, swing_period

if TYPE_CHECKING:
    from lagsplat_ns.training.fit import SceneFit

_CHUNK = 8
_MAX_PICTURES = 150


@torch.no_grad()
def picture_quality(fit: SceneFit, scene: LatentScene) -> tuple[float, float]:
    """PSNR of training frames in dB, mean over at most `_MAX_PICTURES` evenly spaced ones: all and moving pixels."""
    whole, moving = [], []
    chosen = fit.train_frames[:: max(1, -(-len(fit.train_frames) // _MAX_PICTURES))]
    for begin in range(0, len(chosen), _CHUNK):
        rows = chosen[begin : begin + _CHUNK]
        q = scene.path_q[torch.from_numpy(rows).to(fit.device)]
        pictures = render_scene(scene, fit.camera, q).clamp(0.0, 1.0)
        errors = (pictures - fit.tensor_frames(rows)).square().mean(-1).cpu()
        for error, mask in zip(errors, torch.from_numpy(fit.masks(rows)), strict=True):
            whole.append(psnr(float(error.mean())))
            if bool(mask.any()):
                moving.append(psnr(float(error[mask].mean())))
    return float(np.mean(whole)), float(np.mean(moving)) if moving else float("nan")


def _places(scene: LatentScene, q: Float[np.ndarray, "F d"]) -> Float[np.ndarray, "F M 2"]:
    """Plane positions of the moving primitives, weighted so that squared distances add up to a mean."""
    means = scene.moving(torch.from_numpy(q).to(scene.path_q))[0][..., 0::2]
    return (means * scene.mass_weights().sqrt()[:, None]).double().cpu().numpy()


@dataclass(frozen=True)
class HeldOut:
    """The held-out frames of one clip: q as read off their pictures, which no part of the training has seen, and as
    forecast from the training part."""

    seen: Frames
    forecast: Frames


@torch.no_grad()
def held_out_frames(fit: SceneFit, scene: LatentScene) -> list[HeldOut | None]:
    """Held-out frames of every clip; None where there are fewer than two."""
    result: list[HeldOut | None] = []
    for k, path in enumerate(scene.paths):
        n, total = path.num_train, len(path.times_s)
        if total - n < 2:
            result.append(None)
            continue
        rows = np.arange(n, total) + fit.offsets[k]
        q, qd, times = (x.double().cpu().numpy() for x in (path.q, path.qd, path.times_s))
        seen = track(scene, fit.camera, fit.background, fit.frames(rows), q[n - 1], qd[n - 1], times[n - 1 :])
        rates = np.gradient(seen, times[n:], axis=0)
        result.append(HeldOut(Frames(times[n:], seen, rates), Frames(times[n:], q[n:], qd[n:])))
    return result


@torch.no_grad()
def clip_forecasts(fit: SceneFit, scene: LatentScene, held_out: Sequence[HeldOut | None]) -> list[ClipForecast]:
    """Held-out errors of every clip that has any: of the forecast, of the last frame frozen, of constant velocity in q.

    Errors are those of the moving primitives in the picture, relative to their range of motion in the training frames.
    """
    result = []
    for clip, path, held in zip(fit.clips, scene.paths, held_out, strict=True):
        if held is None:
            continue
        n = path.num_train
        q, qd, times = (x.double().cpu().numpy() for x in (path.q, path.qd, path.times_s))
        truth, ahead = _places(scene, held.seen.q), (times[n:] - times[n - 1])[:, None]
        extent = np.sqrt(np.square(np.ptp(_places(scene, q[:n]), axis=0)).sum())
        guesses = (held.forecast.q, np.repeat(q[n - 1 : n], len(ahead), 0), q[n - 1] + ahead * qd[n - 1])
        errors = (np.sqrt(np.square(_places(scene, g) - truth).sum((1, 2)).mean()) / extent for g in guesses)
        result.append(ClipForecast(clip.source.name, float(ahead[-1, 0]), *(float(error) for error in errors)))
    return result


def _pooled(forecasts: list[ClipForecast], name: str) -> float | None:
    """Root mean square over the clips, each with its share of the held-out time."""
    if not forecasts:
        return None
    weights = [forecast.seconds for forecast in forecasts]
    return float(np.sqrt(np.average([getattr(forecast, name) ** 2 for forecast in forecasts], weights=weights)))


def confidence(fit: SceneFit, scene: LatentScene) -> Confidence:
    """What the held-out frames, the inputs and the measurements say about a scene, trained just now or loaded."""
    held_out = held_out_frames(fit, scene)
    train = [
        Frames(*(x[: path.num_train].double().cpu().numpy() for x in (path.times_s, path.q, path.qd)))
        for path in scene.paths
    ]
    seen, forecast = (
        [None if held is None else getattr(held, key) for held in held_out] for key in ("seen", "forecast")
    )
    identified = None if fit.learned is None else fit.learned.identified
    return Confidence(
        clip_forecasts(fit, scene, held_out),
        coordinate_ranges(scene, fit.camera.pixel_size),
        input_effects(scene, fit.clips, identified),
        check_measurements([clip.measurements for clip in fit.clips], train, seen, forecast),
    )


def evaluate(fit: SceneFit, scene: LatentScene) -> FitReport:
    """All figures of a finished training."""
    quality = picture_quality(fit, scene)
    known = confidence(fit, scene)
    forecasts = known.forecasts
    path = scene.paths[0]
    n = path.num_train
    notes = list(fit.log.notes)
    disturbed: list[tuple[float, float]] = []
    if fit.learned is not None:
        notes += fit.learned.identified.notes
        disturbed = [span for p in fit.learned.identified.paths for span in p.disturbed_s]
    period = None
    if scene.latent_dim == 1:
        calm = slice(0, n) if fit.learned is None else longest_run(fit.learned.is_used[:n])
        period = swing_period(path.times_s[calm].cpu().numpy(), path.q[calm, 0].double().cpu().numpy())
    fit.log.begin(None)
    return FitReport(
        latent_dim=scene.latent_dim,
        num_bases=scene.spec.num_bases,
        num_gaussians=scene.num_gaussians,
        psnr=quality[0],
        psnr_moving=quality[1],
        forecast_error=_pooled(forecasts, "error"),
        frozen_error=_pooled(forecasts, "frozen_error"),
        constant_velocity_error=_pooled(forecasts, "constant_velocity_error"),
        forecast_seconds=float(path.times_s[-1] - path.times_s[n - 1]),
        period_s=period,
        disturbed_s=disturbed,
        seconds=dict(fit.log.seconds),
        notes=notes,
        confidence=known,
    )
