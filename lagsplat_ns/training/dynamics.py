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
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.rollout import rollout
from lagsplat_ns.dynamics.shooting import IdentifyOptions, identify
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.types import State

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


def _inputs_of(clip: PreparedClip, names: Sequence[str]) -> InputFunction | None:
    """The clip's measured inputs as a function of time, seconds [*] to values [*, m]; zero where it has no log."""
    if not names:
        return None
    log = clip.sensors
    if log is None:
        return lambda t: t.new_zeros(*t.shape, len(names))
    return lambda t: torch.from_numpy(np.asarray(log.at(t.detach().cpu().numpy()))).to(t)


def _bounded(mechanism: Mechanism, path: IdentifiedPath, seen: ObservedPath) -> IdentifiedPath:
    """A path whose rollout left the range of numbers, rolled again in steps that never gain energy.

    Fixed steps, fast enough for a fit, can be too long for the stiff mechanism of a thing that hits something.
    """
    is_finite = torch.isfinite(path.q).all(-1) & torch.isfinite(path.qd).all(-1)
    if bool(is_finite.all()):
        return path
    first = min(int((~is_finite).nonzero()[0]), path.num_train)
    q, qd = path.q.clone(), path.qd.clone()
    q[first : path.num_train] = seen.q[first : path.num_train]
    qd[first : path.num_train] = 0.0
    start = State(q[path.num_train - 1], torch.nan_to_num(qd[path.num_train - 1]))
    ahead = rollout(mechanism, start, path.times_s[path.num_train - 1 :], inputs=seen.inputs, method="guarded")
    q[path.num_train :], qd[path.num_train :] = ahead.q[1:], ahead.qd[1:]
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
    for clip, count in zip(clips, num_train, strict=True):
        rows = slice(start, start + len(clip.times_s))
        observed.append(
            ObservedPath(
                torch.from_numpy(np.array(clip.times_s, dtype=np.float64)),
                torch.from_numpy(path[rows]),
                _inputs_of(clip, scene.spec.input_names),
                count,
            )
        )
        start = rows.stop
    identified = identify(observed, scene.geometric_metric(), IdentifyOptions(quick=is_quick), scene.spec.num_inputs)
    paths = [_bounded(identified.mechanism, p, seen) for p, seen in zip(identified.paths, observed, strict=True)]
    q, qd = (np.concatenate([getattr(p, name).numpy() for p in paths]) for name in ("q", "qd"))
    if not (np.isfinite(q).all() and np.isfinite(qd).all()):
        raise FloatingPointError(
            "The learned dynamics left the range of numbers (stage dynamics, quantity q).\n"
            "  Give fewer latent coordinates: --pipeline.model.latent-dim 1, or a longer clip."
        )
    is_used = np.concatenate([p.is_used.numpy() for p in identified.paths])
    is_forecast = np.concatenate([np.arange(len(p.q)) >= p.num_train for p in identified.paths])
    return LearnedDynamics(identified.mechanism, q, qd, is_used, is_forecast, identified)
