"""The body of `lagsplat bench --dynamics`: how long kernels of the dynamics take, beside the same work in torch."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from lagsplat_ns.compiling import pool
from lagsplat_ns.dynamics.compiled.pack import compiled_of
from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.windows import Windows, cut_windows, roll_windows, roll_windows_in_torch
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.bases import placement
from lagsplat_ns.gaussians.metric import GeometricMetric
from lagsplat_ns.simulation.stepping import Stepper
from lagsplat_ns.types import State

__all__ = ["Timing", "bench_dynamics", "chain", "main"]

_ARM = 0.3
_NUM_PARAMETERS = 25
_NUM_FRAMES = 150


@dataclass(frozen=True)
class Timing:
    """Medians of one kind of work with d coordinates, in milliseconds; kernels by number of threads."""

    work: str
    latent_dim: int
    kernel_ms: float
    kernel_threads: int
    torch_ms: float

    @property
    def ratio(self) -> float:
        return self.torch_ms / self.kernel_ms


def chain(latent_dim: int) -> Mechanism:
    """A pendulum of that many equal arms with a point mass at the end of each, under gravity and with damping."""
    bases = ArticulatedBases(latent_dim, list(range(-1, latent_dim - 1))).double().requires_grad_(False)
    bases.angle_rows.copy_(torch.eye(latent_dim))
    bases.anchors[1:, 1] = -_ARM * torch.arange(1, latent_dim)
    ends = torch.stack([torch.tensor([0.0, -_ARM * (k + 1)], dtype=torch.float64) for k in range(latent_dim)])
    matrices = placement(ends, bases.origin, torch.eye(latent_dim, dtype=torch.float64))
    grams = torch.einsum("nci,ncj->nij", matrices, matrices) / latent_dim
    shares = torch.full((latent_dim,), 1 / latent_dim, dtype=torch.float64)
    metric: torch.nn.Module = GeometricMetric(bases, grams, matrices / latent_dim, shares)
    if latent_dim == 1:
        metric = ConstantMetric(torch.full((1, 1), _ARM**2, dtype=torch.float64))
    mechanism = Mechanism.polynomial(metric, latent_dim, 8 if latent_dim == 1 else 6).requires_grad_(False)
    if isinstance(metric, GeometricMetric):
        metric.admit(gravity=True, densities=True)
        metric.gravity.copy_(torch.tensor([0.0, -9.81]))
    mechanism.potential.stiffness_factor.mul_(0.5)
    mechanism.potential.weights.copy_(0.01 * torch.randn(mechanism.potential.weights.shape))
    return mechanism


def _windows(latent_dim: int) -> Windows:
    """A clip of 5 s at 30 frames per second, cut as an identification cuts it."""
    times = torch.arange(_NUM_FRAMES, dtype=torch.float64) / 30
    q = 0.5 * torch.sin(torch.stack([(2.0 + k) * times for k in range(latent_dim)], dim=-1))
    return cut_windows([ObservedPath(times, q)], [Segment(0, 0, _NUM_FRAMES)], 25, 4)


def bench_dynamics(
    dims: tuple[int, ...] = (1, 2, 3, 4),
    num_runs: int = 21,
    torch_runs: int = 3,
    json_path: Path | None = None,
    console: Console | None = None,
) -> list[Timing]:
    """Times, in one run, a step of 1/60 s and the rollouts behind one set of sensitivities; prints a table.

    Steps begin in a swing of half a radian. Sensitivities are those of 150 frames by 25 parameters and the starts of
    the windows, in one thread and in two. json_path: also writes the numbers there.
    """
    timings: list[Timing] = []
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            for d in dims:
                torch.manual_seed(d)
                mechanism = chain(d)
                timings.append(_time_step(mechanism, num_runs, torch_runs))
                timings += _time_rollouts(mechanism, num_runs, torch_runs)
    finally:
        pool.set_num_threads(None)
        torch.set_num_threads(torch_threads)
    _print(timings, console or Console())
    if json_path is not None:
        machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
        rows = [asdict(t) | {"ratio": t.ratio} for t in timings]
        json_path.write_text(json.dumps({"machine": machine, "timings": rows}, indent=2), encoding="utf-8")
    return timings


def main() -> None:
    """What `lagsplat bench --dynamics` runs."""
    bench_dynamics()


def _time_step(mechanism: Mechanism, num_runs: int, torch_runs: int) -> Timing:
    stepper, d = Stepper(), mechanism.latent_dim
    state = State(torch.full((d,), 0.5, dtype=torch.float64), torch.zeros(d, dtype=torch.float64))
    compiled = stepper.compiled(mechanism)
    assert compiled is not None
    ours = _median_ms(lambda: stepper.advance_compiled(compiled, state, 1 / 60), 10 * num_runs)
    theirs = _median_ms(
        lambda: stepper.advance(state, 1 / 60, lambda now, _: forward_dynamics(mechanism, now)), torch_runs
    )
    return Timing("step of 1/60 s", d, ours, 1, theirs)


def _time_rollouts(mechanism: Mechanism, num_runs: int, torch_runs: int) -> list[Timing]:
    windows, d = _windows(mechanism.latent_dim), mechanism.latent_dim
    vector = mechanism.parameter_vector()
    count = 1 + _NUM_PARAMETERS + 2 * d
    batch = mechanism.with_vector(vector.expand(count, 1, -1) + 1e-6 * torch.rand(count, 1, 1, dtype=torch.float64))
    assert compiled_of(batch) is not None
    q = windows.observed[:, 0].expand(count, -1, -1)
    rates = torch.zeros_like(q)
    theirs = _median_ms(lambda: roll_windows_in_torch(batch, q, rates, windows), torch_runs)
    timings = []
    for num_threads in (1, 2):
        pool.set_num_threads(num_threads)
        ours = _median_ms(lambda: roll_windows(batch, q, rates, windows), num_runs)
        timings.append(Timing("sensitivities", d, ours, num_threads, theirs))
    return timings


def _median_ms(function: Callable[[], object], num_runs: int) -> float:
    function()
    times = []
    for _ in range(num_runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _print(timings: list[Timing], console: Console) -> None:
    table = Table(title="Dynamics, medians in ms")
    for column in ("work", "coordinates", "threads", "kernel", "torch, 1 thread", "ratio"):
        table.add_column(column, justify="left" if column == "work" else "right")
    for t in timings:
        numbers = (
            str(t.latent_dim),
            str(t.kernel_threads),
            f"{t.kernel_ms:.3f}",
            f"{t.torch_ms:.1f}",
            f"{t.ratio:.0f}",
        )
        table.add_row(t.work, *numbers)
    console.print(table)
