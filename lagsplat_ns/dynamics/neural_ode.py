"""An unconstrained predictor to compare with: q'' = f(q, q', u) by a free network, without energy, mass or geometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.integrators import Drive, integrator
from lagsplat_ns.dynamics.logged_inputs import step_inputs
from lagsplat_ns.dynamics.neural_shooting import (
    NeuralODE,
    NeuralODEOptions,
    fit_accelerations,
    last_start,
    shoot,
    standardize,
)
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.regression import angular_frequency
from lagsplat_ns.dynamics.smoothing import smooth
from lagsplat_ns.types import State

__all__ = ["NeuralODE", "NeuralODEOptions", "TrainedNeuralODE", "identify_neural_ode"]


@dataclass
class TrainedNeuralODE:
    """A network trained on observed paths, rolled as a mechanism is, in steps of `max_step_s` at most.

    last_starts: per clip the time in seconds and the state from which its forecast starts, fitted to the last frames
    before the held-out ones; loss: mean square of the last windows' residuals in units of the range's deviation.
    """

    network: NeuralODE
    observed: list[ObservedPath]
    last_starts: list[tuple[float, State]]
    max_step_s: float
    loss: float

    @property
    def latent_dim(self) -> int:
        return self.network.latent_dim

    @property
    def num_inputs(self) -> int:
        return self.network.num_inputs

    @torch.no_grad()
    def rollout(
        self,
        start: State,
        times_s: Float[Tensor, " T"],
        inputs: Drive = None,
        substeps: int | None = None,
        method: str = "rk4",
    ) -> State:
        """States at `times_s`, q and qd [T, *B, d], from `start` [*B, d] at times_s[0]; `method` as in `rollout`."""
        advance, a = integrator(method), self.network.driven(inputs)
        q, qd = start.q.double(), start.qd.double()
        path, rates, times = [q], [qd], [float(t) for t in times_s]
        for begin, end in zip(times[:-1], times[1:]):
            count = substeps or max(math.ceil(abs(end - begin) / self.max_step_s - 1e-6), 1)
            h = torch.full((1,), (end - begin) / count, dtype=torch.float64)
            for k in range(count):
                if callable(inputs) and method == "rk4":  # then all that a log says between the nodes counts
                    at = torch.tensor([begin + k * float(h)], dtype=torch.float64)
                    begins, middle, ends = step_inputs(inputs, at, h)[0]
                    nodes = iter((begins, middle, middle, ends))
                    a = self.network.driven(lambda _, nodes=nodes: next(nodes))
                q, qd = advance(a, q, qd, torch.tensor(begin + k * float(h), dtype=torch.float64), h)
            path.append(q)
            rates.append(qd)
        return State(torch.stack(path), torch.stack(rates))

    def forecast(self, times_s: Float[Tensor, " T"], clip: int = 0) -> State:
        """States of one clip at times after its training part, q and qd [T, d]."""
        begin_s, start = self.last_starts[clip]
        times = torch.cat([torch.tensor([begin_s], dtype=torch.float64), times_s.double()])
        path = self.rollout(start, times, self.observed[clip].inputs)
        return State(path.q[1:], path.qd[1:])

    def forecast_error(self, observed: list[ObservedPath] | None = None) -> Float[Tensor, "K d"]:
        """RMS of forecast minus observation over the held-out frames, over the range of the fitted ones, per clip."""
        errors = []
        for clip, seen in enumerate(observed or self.observed):
            n = seen.fitted_frames
            ahead = self.forecast(seen.times_s[n:], clip).q - seen.q[n:]
            errors.append(ahead.square().mean(0).sqrt() / (seen.q[:n].amax(0) - seen.q[:n].amin(0)))
        return torch.stack(errors)


def identify_neural_ode(
    observed: list[ObservedPath], num_inputs: int = 0, options: NeuralODEOptions | None = None
) -> TrainedNeuralODE:
    """The network that best explains the fitted frames of all paths, found by multiple shooting and Adam.

    It starts from accelerations of the smoothed paths; then windows that grow are rolled by rk4, with their starts as
    unknowns of their own. Held-out frames are never looked at.

    Raises: ValueError if inputs are missing; ArithmeticError if training leaves the range of numbers.
    """
    options = options or NeuralODEOptions()
    if num_inputs and any(path.inputs is None for path in observed):
        raise ValueError(
            f"Every clip needs its inputs when num_inputs is {num_inputs}, but some have none.\n"
            "  Pass `inputs` with every ObservedPath, or num_inputs=0."
        )
    paths = [
        ObservedPath(
            p.times_s[: p.fitted_frames].double(), p.q[: p.fitted_frames].double(), p.inputs if num_inputs else None
        )
        for p in observed
    ]
    smoothed = [smooth(path.times_s, path.q) for path in paths]
    omega = angular_frequency(smoothed, [Segment(k, 0, path.fitted_frames) for k, path in enumerate(paths)])
    frame_s = max(float((path.times_s[1:] - path.times_s[:-1]).median()) for path in paths)
    substeps = min(max(math.ceil(omega * frame_s / 0.5), 1), 4)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(options.seed)
        network = NeuralODE(paths[0].q.shape[-1], num_inputs, options.width)
        standardize(network, paths, smoothed)
        fit_accelerations(network, paths, smoothed)
        loss = shoot(network, paths, smoothed, options, substeps)
    network = network.double().requires_grad_(False)
    starts = [last_start(network, path, s, substeps) for path, s in zip(paths, smoothed)]
    return TrainedNeuralODE(network, observed, starts, frame_s / substeps, loss)
