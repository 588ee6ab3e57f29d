"""How a free network of accelerations is trained: regression of smoothed paths, then windows that are rolled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.integrators import Acceleration, Drive, rk4
from lagsplat_ns.dynamics.logged_inputs import StageInputs, step_inputs
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.smoothing import Smoothed
from lagsplat_ns.types import State

__all__ = ["NeuralODE", "NeuralODEOptions", "fit_accelerations", "last_start", "shoot", "standardize"]


@dataclass(frozen=True)
class NeuralODEOptions:
    """How to train."""

    width: int = 64
    """width of both hidden layers"""
    window_frames: tuple[int, ...] = (4, 8, 16, 32)
    """lengths of the shooting windows, one stage after the other"""
    iterations: tuple[int, ...] = (400, 300, 300, 150)
    """steps of Adam in every stage"""
    learning_rate: float = 5e-3
    """at the start; falls to a hundredth by a cosine"""
    weight_decay: float = 1e-4
    seed: int = 0


class NeuralODE(nn.Module):
    """f(q, q', u): two hidden layers of tanh on standardized values, the result in units of the usual acceleration.

    Source: Chen et al., "Neural ordinary differential equations", 2018, second order as in Norcliffe et al., 2020.
    """

    input_center: Tensor
    input_scale: Tensor
    output_scale: Tensor

    def __init__(self, latent_dim: int, num_inputs: int = 0, width: int = 64) -> None:
        super().__init__()
        self.latent_dim, self.num_inputs = latent_dim, num_inputs
        size = 2 * latent_dim + num_inputs
        self.layers = nn.ModuleList([nn.Linear(size, width), nn.Linear(width, width), nn.Linear(width, latent_dim)])
        self.register_buffer("input_center", torch.zeros(size))
        self.register_buffer("input_scale", torch.ones(size))
        self.register_buffer("output_scale", torch.ones(latent_dim))

    def forward(
        self, q: Float[Tensor, "*B d"], qd: Float[Tensor, "*B d"], u: Float[Tensor, "*U m"] | None = None
    ) -> Float[Tensor, "*B d"]:
        """Accelerations, 1/s^2."""
        values = [q, qd] if u is None else [q, qd, u.to(q).expand(*q.shape[:-1], -1)]
        h = (torch.cat(values, dim=-1) - self.input_center) / self.input_scale
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.output_scale * self.layers[-1](h)

    def driven(self, inputs: Drive = None) -> Acceleration:
        """a(q, q', t) under inputs, constant or a function of time."""

        def a(q: Tensor, qd: Tensor, t: Tensor) -> Tensor:
            return self(q, qd, inputs(t) if callable(inputs) else inputs)

        return a


@dataclass(frozen=True)
class _Windows:
    """Windows of equal length: clip and first frame [W], dt [W, L], observed [W, L + 1, d], inputs at stage times."""

    begin: list[tuple[int, int]]
    dt: Tensor
    observed: Tensor
    inputs: Tensor | None


def _samples(path: ObservedPath, s: Smoothed) -> Tensor:
    values = [s.q, s.qd] if path.inputs is None else [s.q, s.qd, path.inputs(path.times_s).double()]
    return torch.cat(values, dim=-1)


def standardize(network: NeuralODE, paths: list[ObservedPath], smoothed: list[Smoothed]) -> None:
    """Centers and scales of what goes in and comes out, from the smoothed paths."""
    values = torch.cat([_samples(path, s) for path, s in zip(paths, smoothed)])
    network.input_center.copy_(values.mean(0))
    network.input_scale.copy_(values.std(0).clamp(min=1e-9))
    network.output_scale.copy_(torch.cat([s.qdd for s in smoothed]).std(0).clamp(min=1e-9))


def fit_accelerations(network: NeuralODE, paths: list[ObservedPath], smoothed: list[Smoothed]) -> None:
    """Regression on the smoothed paths: only a start, since second derivatives of a noisy path are poor."""
    values = torch.cat([_samples(path, s)[2:-2] for path, s in zip(paths, smoothed)]).float()
    target = torch.cat([s.qdd[2:-2] for s in smoothed]).float()
    d = network.latent_dim
    q, qd, u = values[:, :d], values[:, d : 2 * d], values[:, 2 * d :] if network.num_inputs else None
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(500):
        loss = ((network(q, qd, u) - target) / network.output_scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _cut(paths: list[ObservedPath], length: int, substeps: int) -> _Windows:
    """Windows of `length` frames that overlap by half."""
    begin, dt, observed, inputs = [], [], [], []
    for clip, path in enumerate(paths):
        steps = min(length, path.fitted_frames - 1)
        firsts = sorted({*range(0, path.fitted_frames - steps, max(steps // 2, 1)), path.fitted_frames - 1 - steps})
        for first in firsts:
            rows = slice(first, first + steps + 1)
            times = path.times_s[rows]
            missing = length - steps
            steps_s = torch.cat([times[1:] - times[:-1], times.new_zeros(missing)])
            begin.append((clip, first))
            dt.append(steps_s)
            observed.append(torch.cat([path.q[rows], path.q[rows][-1:].expand(missing, -1)]))
            if path.inputs is not None:
                inputs.append(_stage_inputs(path.inputs, times[0], steps_s, substeps))
    stacked = torch.stack(inputs).float() if inputs else None
    return _Windows(begin, torch.stack(dt).float(), torch.stack(observed).float(), stacked)


def _stage_inputs(inputs: InputFunction, start: Tensor, dt: Tensor, substeps: int) -> Tensor:
    """Inputs [3 L substeps, m] at the beginning, middle and end of every step, as identifications take them."""
    lengths = (dt / substeps).repeat_interleave(substeps)
    return step_inputs(inputs, start + lengths.cumsum(0) - lengths, lengths).flatten(0, 1)


def _rolled(network: NeuralODE, starts: Tensor, windows: _Windows, substeps: int) -> Tensor:
    """q [W, L + 1, d] of all windows from starts [W, 2 d]."""
    d = network.latent_dim
    q, qd = starts[:, :d], starts[:, d:]
    a = network.driven(None if windows.inputs is None else StageInputs(windows.inputs))
    path = [q]
    for k in range(windows.dt.shape[1]):
        h = windows.dt[:, k, None] / substeps
        for _ in range(substeps):
            q, qd = rk4(a, q, qd, torch.zeros(()), h)
        path.append(q)
    return torch.stack(path, dim=1)


def shoot(
    network: NeuralODE, paths: list[ObservedPath], smoothed: list[Smoothed], options: NeuralODEOptions, substeps: int
) -> float:
    """Trains in stages of growing windows; the mean square residual at the end."""
    spread = torch.cat([path.q for path in paths]).std(0).clamp(min=1e-9).float()
    scale = network.input_scale[: 2 * network.latent_dim]
    states = [torch.cat([s.q, s.qd], dim=-1).float() for s in smoothed]
    last, best, done, total = float("inf"), None, 0, sum(options.iterations)
    longest = max(path.fitted_frames for path in paths) // 2
    for length, count in zip(options.window_frames, options.iterations, strict=True):
        windows = _cut(paths, max(min(length, longest), 3), substeps)
        known = torch.stack([states[clip][first] for clip, first in windows.begin])
        moves = nn.Parameter(torch.zeros_like(known))
        optimizer = torch.optim.AdamW(
            [
                {"params": list(network.parameters()), "weight_decay": options.weight_decay},
                {"params": [moves], "weight_decay": 0.0},
            ]
        )
        for _ in range(count):
            rate = options.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done / total)))
            done += 1
            for group, share in zip(optimizer.param_groups, (1.0, 0.2)):
                group["lr"] = share * rate
            rolled = _rolled(network, known + scale * moves, windows, substeps)
            loss = ((rolled - windows.observed) / spread).square().mean()
            if not bool(torch.isfinite(loss)):
                break
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            last = float(loss.detach())
        if all(bool(torch.isfinite(p).all()) for p in network.parameters()) and math.isfinite(last):
            best = {name: value.detach().clone() for name, value in network.state_dict().items()}
    if best is None:
        raise ArithmeticError(
            "The training of the neural ODE left the range of numbers (stage shooting, quantity q).\n"
            "  Lower `learning_rate`, or scale the path."
        )
    network.load_state_dict(best)
    return last


def last_start(network: NeuralODE, path: ObservedPath, s: Smoothed, substeps: int) -> tuple[float, State]:
    """Time and state at the beginning of the last frames, so that the rolled path meets them best."""
    count = min(24, path.fitted_frames - 1)
    first = path.fitted_frames - 1 - count
    times = path.times_s[first:]
    dt = times[1:] - times[:-1]
    inputs: InputFunction | None = path.inputs
    stages = None if inputs is None else _stage_inputs(inputs, times[0], dt, substeps)[None]
    d = network.latent_dim
    x = torch.cat([s.q[first], s.qd[first]])
    probes = 1e-5 * network.input_scale[: 2 * d]

    def residuals(states: Tensor) -> Tensor:
        n = states.shape[0]
        windows = _Windows(
            [], dt.expand(n, -1), path.q[first:].expand(n, -1, -1), None if stages is None else stages.expand(n, -1, -1)
        )
        return (_rolled(network, states, windows, substeps) - windows.observed).flatten(1)

    best = float("inf")
    result = x
    for _ in range(8):
        values = residuals(torch.cat([x[None], x + probes.diag()]))
        cost = float(values[0].square().sum())
        if not cost < best:
            break
        best, result = cost, x
        slopes = ((values[1:] - values[0]) / probes[:, None]).T
        x = x - torch.linalg.lstsq(slopes, values[0][:, None]).solution[:, 0]
    return float(times[0]), State(result[:d], result[d:])
