"""Forecasts without physics on the same latent paths and the same pictures: what the benchmark compares with.

Each replaces the equation of motion of a trained simulator and keeps its Gaussians, its coordinates, and its grips.
A force on a grip enters as the acceleration J^T f, since none of them knows a mass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from lagsplat_ns.bench.truth import Truth
from lagsplat_ns.dynamics.inputs import interpolated_inputs
from lagsplat_ns.dynamics.integrators import rk4
from lagsplat_ns.dynamics.neural_ode import NeuralODE, NeuralODEOptions, identify_neural_ode
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.simulation.grip import picture_jacobian
from lagsplat_ns.simulation.held import held_motion
from lagsplat_ns.simulator import Grip, Simulator
from lagsplat_ns.types import State

__all__ = ["BASELINES", "Predictor", "PredictorSimulator", "latent_path"]


MAX_STEP_S = 1 / 90
MAX_MAGNITUDE = 1e9


@runtime_checkable
class Predictor(Protocol):
    """Accelerations q'' [d] of a state q, qd [d] under inputs u [m]."""

    def acceleration(self, q: Tensor, qd: Tensor, u: Tensor) -> Tensor: ...


def latent_path(sim: Simulator, truth: Truth) -> ObservedPath:
    """The clip's training frames as the simulator recorded them, with the true inputs."""
    path = sim.scene.paths[0]
    times, q = (x.detach().cpu().double()[: int(path.num_train)] for x in (path.times_s, path.q))
    inputs = None
    if truth.is_forced:
        log = torch.from_numpy(np.array(truth.inputs))
        inputs = interpolated_inputs(torch.from_numpy(np.array(truth.input_times_s)), log)
    return ObservedPath(times, q, inputs)


class PredictorSimulator(Simulator):
    """A trained simulator whose motion outside the clip comes from a predictor. It has no energy.

    predictor: None holds the state still wherever it is, whatever pulls.
    """

    def __init__(self, sim: Simulator, predictor: Predictor | None) -> None:
        self.__dict__.update(copy.copy(sim).__dict__)
        self._predictor = predictor

    @torch.no_grad()
    def step(
        self,
        dt: float | int,
        forces: Sequence[tuple[Grip, tuple[float | int, float | int]]] = (),
        inputs: Mapping[str, float | int] | None = None,
    ) -> None:
        """Lets time pass by the classical Runge-Kutta method.

        Raises: FloatingPointError if the motion leaves the range of numbers.
        """
        state, predictor = self.state, self._predictor
        self.time_s += dt
        if predictor is None:
            self._state = State(state.q.clone(), torch.zeros_like(state.qd))
            return
        u = torch.tensor([float((inputs or {}).get(name, 0.0)) for name in self.input_names], dtype=torch.float64)
        pulls = [(g, held_motion(self.scene, g.indices), torch.tensor(f).double()) for g, f in forces if not g.is_empty]

        def a(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
            result = predictor.acceleration(q, qd, u)
            for grip, motion, pull in pulls:
                result = result + picture_jacobian(grip, *motion(q)).T @ pull
            return result

        count = max(1, math.ceil(abs(dt) / MAX_STEP_S - 1e-9))
        h, q, qd = torch.full((1,), dt / count, dtype=torch.float64), state.q, state.qd
        for _ in range(count):
            q, qd = rk4(a, q, qd, torch.zeros(()), h)
            if not float(torch.cat([q, qd]).abs().max()) < MAX_MAGNITUDE:
                raise FloatingPointError(
                    f"The predicted motion must stay finite, but q = {q.tolist()}, qd = {qd.tolist()}.\n"
                    "  Use a smaller force."
                )
        self._state = State(q, qd)

    def energy(self) -> float:
        raise ArithmeticError("A predictor without physics has no energy.\n  Ask a trained simulator.")


def _frozen(sim: Simulator, truth: Truth, seed: int) -> None:
    return None


def _oscillator(sim: Simulator, truth: Truth, seed: int) -> Predictor:
    from lagsplat_ns.bench.oscillator import fit_oscillator

    return fit_oscillator(latent_path(sim, truth))


class _NetworkPredictor:
    def __init__(self, network: NeuralODE) -> None:
        self._network = network

    def acceleration(self, q: Tensor, qd: Tensor, u: Tensor) -> Tensor:
        return self._network(q, qd, u if len(u) else None)


def _neural_ode(sim: Simulator, truth: Truth, seed: int) -> Predictor:
    options = NeuralODEOptions(seed=seed)
    trained = identify_neural_ode([latent_path(sim, truth)], len(truth.input_names), options)
    return _NetworkPredictor(trained.network)


BASELINES: dict[str, Callable[[Simulator, Truth, int], Predictor | None]] = {
    "copy last frame": _frozen,
    "linear oscillator": _oscillator,
    "neural ODE": _neural_ode,
}
"""Fits of the predictors by name: simulator, truth (for its inputs alone), seed."""
