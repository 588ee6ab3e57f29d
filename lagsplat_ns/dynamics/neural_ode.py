"""An unconstrained predictor to compare with: q'' = f(q, q', u) by a free network, without energy, mass or geometry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lagsplat_ns.dynamics.inputs import InputFunction
from lagsplat_ns.dynamics.integrators import Acceleration, Drive, integrator, rk4
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.regression import angular_frequency
from lagsplat_ns.dynamics.smoothing import Smoothed, smooth
from lagsplat_ns.types import State

__all__ = ["NeuralODE", "NeuralODEOptions", "TrainedNeuralODE", "identify_neural_ode"]


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


@dataclass(frozen=True)
class _Windows:
    """Windows of equal length: clip and first frame [W], dt [W, L], observed [W, L + 1, d], inputs at stage times."""

    begin: list[tuple[int, int]]
    dt: Tensor
    observed: Tensor
    inputs: Tensor | None


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
        _standardize(network, paths, smoothed)
        _fit_accelerations(network, paths, smoothed)
        loss = _shoot(network, paths, smoothed, options, substeps)
    network = network.double().requires_grad_(False)
    starts = [_last_start(network, path, s, substeps) for path, s in zip(paths, smoothed)]
    return TrainedNeuralODE(network, observed, starts, frame_s / substeps, loss)


def _samples(path: ObservedPath, s: Smoothed) -> Tensor:
    values = [s.q, s.qd] if path.inputs is None else [s.q, s.qd, path.inputs(path.times_s).double()]
    return torch.cat(values, dim=-1)


def _standardize(network: NeuralODE, paths: list[ObservedPath], smoothed: list[Smoothed]) -> None:
    values = torch.cat([_samples(path, s) for path, s in zip(paths, smoothed)])
    network.input_center.copy_(values.mean(0))
    network.input_scale.copy_(values.std(0).clamp(min=1e-9))
    network.output_scale.copy_(torch.cat([s.qdd for s in smoothed]).std(0).clamp(min=1e-9))


def _fit_accelerations(network: NeuralODE, paths: list[ObservedPath], smoothed: list[Smoothed]) -> None:
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
                inputs.append(path.inputs(_stage_times(times[0], steps_s, substeps)).double())
    stacked = torch.stack(inputs).float() if inputs else None
    return _Windows(begin, torch.stack(dt).float(), torch.stack(observed).float(), stacked)


def _stage_times(start: Tensor, dt: Tensor, substeps: int) -> Tensor:
    """Times of all beginnings, middles and ends of steps [2 L substeps + 1]."""
    halves = (dt / (2 * substeps)).repeat_interleave(2 * substeps)
    return start + torch.cat([halves.new_zeros(1), halves.cumsum(0)])


def _rolled(network: NeuralODE, starts: Tensor, windows: _Windows, substeps: int) -> Tensor:
    """q [W, L + 1, d] of all windows from starts [W, 2 d]."""
    d = network.latent_dim
    q, qd = starts[:, :d], starts[:, d:]
    path, stage = [q], 0
    for k in range(windows.dt.shape[1]):
        h = windows.dt[:, k, None] / substeps
        for _ in range(substeps):
            q, qd = rk4(_at_stages(network, windows.inputs, stage), q, qd, torch.zeros(()), h)
            stage += 2
        path.append(q)
    return torch.stack(path, dim=1)


def _at_stages(network: NeuralODE, inputs: Tensor | None, stage: int) -> Acceleration:
    """The acceleration of one step of rk4, which asks at its beginning, twice in the middle, and at its end."""
    if inputs is None:
        return network.driven()
    values = iter([inputs[:, stage], inputs[:, stage + 1], inputs[:, stage + 1], inputs[:, stage + 2]])
    return lambda q, qd, t: network(q, qd, next(values))


def _shoot(
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


def _last_start(network: NeuralODE, path: ObservedPath, s: Smoothed, substeps: int) -> tuple[float, State]:
    """Time and state at the beginning of the last frames, so that the rolled path meets them best."""
    count = min(24, path.fitted_frames - 1)
    first = path.fitted_frames - 1 - count
    times = path.times_s[first:]
    dt = times[1:] - times[:-1]
    inputs: InputFunction | None = path.inputs
    stages = None if inputs is None else inputs(_stage_times(times[0], dt, substeps)).double()[None]
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
