"""From q read off pictures to a mechanism that moves it, and the paths that it rolls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.dynamics.identified import Identified, IdentifiedPath
from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.logged_inputs import LoggedInputs
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.dynamics.shooting import IdentifyOptions, identify
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.types import State

_FAR = 3.0
"""distance from the observed range, in ranges, at which a rollout counts as lost"""
_MISFIT = 3.0
"""residual of rolled paths over the noise of the observed ones from which they are no longer believed"""


@dataclass(frozen=True)
class LearnedDynamics:
    """A mechanism with the paths of all clips, joined along time.

    q, qd [T, d]: rolled where the physics holds, observed in disturbed spans, forecast from the training part on;
    is_used [T]: training frames outside disturbed spans.
    """

    mechanism: Mechanism
    q: Float[np.ndarray, "T d"]
    qd: Float[np.ndarray, "T d"]
    is_used: Bool[np.ndarray, " T"]
    is_forecast: Bool[np.ndarray, " T"]
    identified: Identified

    @property
    def is_one_mechanism(self) -> bool:
        """Whether the rolled paths stay near the observed ones."""
        return self.identified.residual_rms < _MISFIT

    def recorded(self, observed: Float[np.ndarray, "T d"]) -> tuple[np.ndarray, np.ndarray]:
        """q and qd [T, d] to show: the rolled path, but what was observed where no physics was found to hold.

        Those are the disturbed spans, and the whole training part if the thing does not move as one smooth mechanism.
        """
        is_rolled = self.is_forecast | (self.is_used & self.is_one_mechanism)
        return np.where(is_rolled[:, None], self.q, observed), self.qd


def _inputs_of(clip: PreparedClip, names: Sequence[str], left_out: Sequence[int]) -> InputFunction | None:
    """The clip's measured inputs as a function of time; zero where it has no log, and in columns that are left out."""
    if not names:
        return None
    if clip.sensors is None:
        return LoggedInputs(torch.zeros(1), torch.zeros(1, len(names)))
    log = clip.sensors.picked(tuple(names))
    values = torch.from_numpy(np.array(log.values))
    values[:, list(left_out)] = 0.0
    return LoggedInputs(torch.from_numpy(np.array(log.times_s)), values, log.interpolation == "hold")


def _constant_inputs(clips: Sequence[PreparedClip], names: Sequence[str]) -> list[int]:
    """Inputs that have one and the same value all through all clips: how they act cannot be told from anything else."""
    constant = []
    for column, name in enumerate(names):
        levels = set()
        for clip in clips:
            log = None if clip.sensors is None else clip.sensors.picked((name,))
            is_still = log is None or bool(log.is_constant(float(clip.times_s[clip.num_train - 1]))[0])
            levels.add((0.0 if log is None else float(log.at(np.zeros(1))[0, 0])) if is_still else np.nan)
        if len(levels) == 1 and not np.isnan(levels.pop()):
            constant.append(column)
    return constant


def _bounded(identified: Identified, clip: int) -> IdentifiedPath:
    """A clip's path; one whose rollout ran far out of the observed range is observed there, and forecast anew.

    The new forecast starts from the smoothed end of the training part and takes steps that never gain energy: fixed
    steps, fast enough for a fit, can be too long for the stiff mechanism of a thing that hits something.
    """
    path, seen, states = identified.paths[clip], identified.observed[clip], identified.smoothed_states[clip]
    n, d = path.num_train, path.q.shape[-1]
    low, high = seen.q[:n].amin(0), seen.q[:n].amax(0)
    reach = _FAR * (high - low)
    is_sane = torch.isfinite(path.qd).all(-1) & ((path.q > low - reach) & (path.q < high + reach)).all(-1)
    if bool(is_sane.all()):
        return path
    q, qd = path.q.clone(), path.qd.clone()
    wrong = ~is_sane[:n]
    q[:n][wrong], qd[:n][wrong] = states[:n, :d][wrong], states[:n, d:][wrong]
    start = State(states[n - 1, :d], states[n - 1, d:])
    ahead = rollout(identified.mechanism, start, path.times_s[n - 1 :], inputs=seen.inputs, method="guarded")
    q[n:], qd[n:] = ahead.q[1:], ahead.qd[1:]
    return replace(path, q=q, qd=qd)


def learn_dynamics(
    scene: LatentScene,
    clips: list[PreparedClip],
    path: Float[np.ndarray, "T d"],
    num_train: list[int],
    is_quick: bool = False,
) -> LearnedDynamics:
    """Identify the scene's mechanism from observed q; frames from `num_train` on of each clip are forecast.

    is_quick: a rough fit, good enough to compare choices.

    Raises: FloatingPointError if the fit left the range of numbers, naming the stage.
    """
    observed, start = [], 0
    names = scene.spec.input_names
    constant = _constant_inputs(clips, names)
    for clip, count in zip(clips, num_train, strict=True):
        rows = slice(start, start + len(clip.times_s))
        observed.append(
            ObservedPath(
                torch.from_numpy(np.array(clip.times_s, dtype=np.float64)),
                torch.from_numpy(path[rows]),
                _inputs_of(clip, names, constant),
                count,
            )
        )
        start = rows.stop
    identified = identify(observed, scene.new_metric(), IdentifyOptions(quick=is_quick), scene.spec.num_inputs)
    paths = [_bounded(identified, clip) for clip in range(len(clips))]
    q, qd = (np.concatenate([getattr(p, name).numpy() for p in paths]) for name in ("q", "qd"))
    if not (np.isfinite(q).all() and np.isfinite(qd).all()):
        raise FloatingPointError(
            "The learned dynamics left the range of numbers (stage dynamics, quantity q).\n"
            "  Give fewer latent coordinates: --pipeline.model.latent-dim 1, or a longer clip."
        )
    is_used = np.concatenate([p.is_used.numpy() for p in identified.paths])
    is_forecast = np.concatenate([np.arange(len(p.q)) >= p.num_train for p in identified.paths])
    return LearnedDynamics(identified.mechanism, q, qd, is_used, is_forecast, identified)
