"""How far a training can be trusted: what was excited, over which range, what inputs told, what measurements say."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.dynamics.identified import Identified
from lagsplat_ns.gaussians.scene import LatentScene

__all__ = ["ClipForecast", "CoordinateRange", "InputEffect", "coordinate_ranges", "input_effects"]

_STILL_PX = 1.0
_UNSURE = 0.3


@dataclass(frozen=True)
class ClipForecast:
    """Held-out error of one clip: root mean square of the moving primitives in the picture over their range."""

    clip: str
    seconds: float
    error: float
    frozen_error: float
    constant_velocity_error: float


@dataclass(frozen=True)
class CoordinateRange:
    """What the training frames showed of one coordinate.

    low, high: q; fastest: 1/s; picture_px: how far the thing moves in the picture along that range, root mean square
    over its mass, the other coordinates held; is_excited: whether that is more than a pixel.
    """

    low: float
    high: float
    fastest: float
    picture_px: float
    is_excited: bool


@dataclass(frozen=True)
class InputEffect:
    """What the training frames told about one input.

    low, high: in its unit; force_share: its force over that of all that pulls (root mean square); uncertainty: standard
    deviation of its effect over the effect, None where the fit is not at hand; is_identified: whether it changed, and
    its effect is known to better than 30 %.
    """

    name: str
    unit: str
    low: float
    high: float
    force_share: float
    uncertainty: float | None
    is_identified: bool


@torch.no_grad()
def coordinate_ranges(scene: LatentScene, pixel_size: float) -> list[CoordinateRange]:
    """The range of every coordinate in the training frames of all clips; pixel_size: scene units per pixel."""
    q = torch.cat([path.q[: path.num_train] for path in scene.paths])
    qd = torch.cat([path.qd[: path.num_train] for path in scene.paths])
    weights = scene.mass_weights().double().cpu()
    low, high = q.amin(0), q.amax(0)
    chosen = q[:: max(1, len(q) // 8)]
    squares = torch.stack([scene.jacobian(row)[: scene.num_moving, 0::2].double().cpu() for row in chosen]).square()
    per_unit = torch.einsum("m,tmcd->d", weights, squares).div(len(chosen)).sqrt()
    result = []
    for k in range(scene.latent_dim):
        moved = float(per_unit[k] * (high[k] - low[k]).double().cpu()) / pixel_size
        fastest = float(qd[:, k].abs().max())
        result.append(CoordinateRange(float(low[k]), float(high[k]), fastest, moved, moved > _STILL_PX))
    return result


@torch.no_grad()
def input_effects(
    scene: LatentScene, clips: Sequence[PreparedClip], identified: Identified | None
) -> list[InputEffect]:
    """What is known about every measured input; `identified`: the fit, for uncertainties."""
    spec, mechanism = scene.spec, scene.mechanism
    if not spec.num_inputs or mechanism is None or mechanism.inputs is None:
        return []
    q, u = [], []
    for clip, path in zip(clips, scene.paths, strict=True):
        times = clip.times_s[: path.num_train]
        q.append(path.q[: path.num_train].double().cpu())
        log = None if clip.sensors is None else clip.sensors.picked(spec.input_names)
        u.append(np.zeros((len(times), spec.num_inputs)) if log is None else log.at(times))
    states, values = torch.cat(q), torch.from_numpy(np.concatenate(u))
    physics = copy.deepcopy(mechanism).cpu().double()
    mass = physics.mass_matrix(states)
    total = _force_size(mass, physics.conservative_force(states))
    spreads = _effect_spread(identified, spec.latent_dim, spec.num_inputs) if identified is not None else None
    units = spec.input_units or ("",) * spec.num_inputs
    result = []
    for k, (name, unit) in enumerate(zip(spec.input_names, units, strict=True)):
        one = torch.zeros_like(values)
        one[:, k] = values[:, k]
        share = _force_size(mass, physics.input_force(states, one)) / max(total, 1e-12)
        effect = float(physics.inputs.weights[0, :, k].norm())
        uncertainty = None
        if spreads is not None:
            uncertainty = float(spreads[k]) / effect if effect > 0 else float("inf")
        low, high = float(values[:, k].min()), float(values[:, k].max())
        is_known = high > low and (uncertainty is None or uncertainty < _UNSURE)
        if uncertainty is not None and not np.isfinite(uncertainty):
            uncertainty = None
        result.append(InputEffect(name, unit, low, high, share, uncertainty, is_known))
    return result


def _force_size(mass: Float[Tensor, "T d d"], force: Float[Tensor, "T d"]) -> float:
    """Root mean square of the accelerations that generalized forces cause, in the metric's own length."""
    return float((force * torch.linalg.solve(mass, force)).sum(-1).mean().sqrt())


def _effect_spread(identified: Identified, latent_dim: int, num_inputs: int) -> Float[Tensor, " m"]:
    """Standard deviation of the constant part of every input's effect, all other unknowns left free."""
    linear = identified.linearization()
    information = torch.diag(linear.prior_spread**-2)
    for path, slopes in zip(identified.paths, linear.slopes, strict=True):
        rows = (slopes[path.is_used] / identified.noise[:, None]).flatten(0, 1)
        information = information + rows.T @ rows
    size = information.diagonal().clamp(min=1e-300).rsqrt()
    covariance = torch.linalg.pinv(information * size[:, None] * size, hermitian=True) * size[:, None] * size
    covariance = covariance * max(identified.residual_rms, 1.0) ** 2
    count = identified.mechanism.parameter_vector().shape[0]
    inputs = identified.mechanism.inputs.parameter_vector().shape[0]  # the last of the physics
    first = count - inputs
    variance = covariance.diagonal()[first : first + latent_dim * num_inputs].view(latent_dim, num_inputs)
    return variance.sum(0).clamp(min=0).sqrt()
