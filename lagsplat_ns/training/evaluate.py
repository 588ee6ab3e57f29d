"""Figures of a finished training: pictures of the training frames, forecast of the held-out ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.training.compositing import render_scene
from lagsplat_ns.training.losses import psnr
from lagsplat_ns.training.measure import track
from lagsplat_ns.training.report import FitReport, longest_run, swing_period

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


@torch.no_grad()
def forecast_errors(fit: SceneFit, scene: LatentScene) -> tuple[float, float, float] | None:
    """Held-out error of the forecast, of the last frame frozen, and of constant velocity in q, over all clips.

    The truth is q read off the held-out pictures, which no part of the training has seen; errors are those of the
    moving primitives in the picture, relative to their range of motion. None without held-out frames.
    """
    gaps: list[list[np.ndarray]] = [[], [], []]
    ranges = []
    for k, path in enumerate(scene.paths):
        n, total = path.num_train, len(path.times_s)
        if total - n < 2:
            continue
        rows = np.arange(n, total) + fit.offsets[k]
        q, qd, times = (x.double().cpu().numpy() for x in (path.q, path.qd, path.times_s))
        seen = track(scene, fit.camera, fit.background, fit.frames(rows), q[n - 1], qd[n - 1], times[n - 1 :])
        truth = _places(scene, seen)
        ahead = (times[n:] - times[n - 1])[:, None]
        guesses = (q[n:], np.repeat(q[n - 1 : n], total - n, 0), q[n - 1] + ahead * qd[n - 1])
        for errors, guess in zip(gaps, guesses, strict=True):
            errors.append(np.square(_places(scene, guess) - truth).sum((1, 2)))
        ranges.append(np.sqrt(np.square(np.ptp(_places(scene, q[:n]), axis=0)).sum()))
    if not ranges:
        return None
    forecast, frozen, straight = (float(np.sqrt(np.concatenate(e).mean()) / np.mean(ranges)) for e in gaps)
    return forecast, frozen, straight


def evaluate(fit: SceneFit, scene: LatentScene) -> FitReport:
    """All figures of a finished training."""
    quality = picture_quality(fit, scene)
    errors = forecast_errors(fit, scene)
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
        forecast_error=None if errors is None else errors[0],
        frozen_error=None if errors is None else errors[1],
        constant_velocity_error=None if errors is None else errors[2],
        forecast_seconds=float(path.times_s[-1] - path.times_s[n - 1]),
        period_s=period,
        disturbed_s=disturbed,
        seconds=dict(fit.log.seconds),
        notes=notes,
    )
