"""The body of `lagsplat bench --renderer`: rendering times of the CPU backend beside vectorized PyTorch, in one run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lagsplat_ns.compiling import pool
from lagsplat_ns.render.rasterize import rasterization
from lagsplat_ns.render.scenes import RandomScene, random_scene
from lagsplat_ns.render.vectorized import rasterize_vectorized

Render = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A scene to time: Gaussians, side of the square image in pixels, cameras."""

    num_gaussians: int
    side_px: int
    num_cameras: int = 1
    is_moving: bool = False

    @property
    def title(self) -> str:
        text = f"{self.num_gaussians} at {self.side_px}²"
        if self.num_cameras > 1:
            text += f" x {self.num_cameras} {'time steps' if self.is_moving else 'cameras'}"
        return text


@dataclass(frozen=True)
class Timing:
    """Medians of one renderer on one case, in milliseconds."""

    case: str
    renderer: str
    forward_ms: float
    forward_backward_ms: float


CASES = (
    Case(5_000, 128),
    Case(5_000, 256),
    Case(20_000, 256),
    Case(20_000, 512),
    Case(50_000, 512),
    Case(2_000, 256, num_cameras=8, is_moving=True),
)
RATIO_CASE = Case(20_000, 256)


def bench_renderer(
    cases: tuple[Case, ...] = CASES,
    thread_counts: tuple[int, ...] = (1, 2),
    num_runs: int = 15,
    vectorized_runs: int = 3,
    json_path: Path | None = None,
    console: Console | None = None,
) -> list[Timing]:
    """Times every case with every number of threads, and vectorized PyTorch with as many.

    Prints a table and, for 20 000 Gaussians at 256 x 256, the ratio of forward + backward medians. json_path: also
    writes the numbers there. Vectorized PyTorch is timed on cases with one camera only.
    """
    timings: list[Timing] = []
    torch_threads = torch.get_num_threads()
    try:
        for case in cases:
            scene = random_scene(
                case.num_gaussians, case.side_px, case.side_px, num_cameras=case.num_cameras, is_moving=case.is_moving
            )
            torch.set_num_threads(1)
            for num_threads in thread_counts:
                pool.set_num_threads(num_threads)
                name = f"lagsplat, {num_threads} thread{'s' if num_threads > 1 else ''}"
                timings.append(_time(case, name, _on_cpu, scene, num_runs))
            if case.num_cameras == 1:
                for num_threads in thread_counts:
                    torch.set_num_threads(num_threads)
                    name = f"vectorized torch, {num_threads} thread{'s' if num_threads > 1 else ''}"
                    timings.append(_time(case, name, rasterize_vectorized, scene, vectorized_runs))
    finally:
        pool.set_num_threads(None)
        torch.set_num_threads(torch_threads)
    _print(timings, console or Console())
    if json_path is not None:
        machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
        json_path.write_text(json.dumps({"machine": machine, "timings": [asdict(t) for t in timings]}, indent=2))
    return timings


def main() -> None:
    """What `lagsplat bench --renderer` runs."""
    bench_renderer()


def ratio_to_vectorized(timings: list[Timing], case: Case = RATIO_CASE) -> float | None:
    """How many times faster our fastest forward + backward median is than vectorized PyTorch's fastest on a case."""
    ours = [t.forward_backward_ms for t in timings if t.case == case.title and t.renderer.startswith("lagsplat")]
    theirs = [t.forward_backward_ms for t in timings if t.case == case.title and t.renderer.startswith("vectorized")]
    return min(theirs) / min(ours) if ours and theirs else None


def _on_cpu(**arguments: Any) -> tuple[Any, ...]:
    return rasterization(**arguments, backend="cpu")


def _time(case: Case, name: str, render: Render, scene: RandomScene, num_runs: int) -> Timing:
    arguments = scene.arguments()
    differentiable = {
        key: arguments[key].requires_grad_() for key in ("means", "quats", "scales", "opacities", "colors")
    }
    weights = torch.rand(case.num_cameras, case.side_px, case.side_px, 3)

    def forward() -> None:
        with torch.no_grad():
            render(**arguments)

    def forward_backward() -> None:
        for tensor in differentiable.values():
            tensor.grad = None
        colors, alphas, *_ = render(**arguments)
        torch.autograd.backward([colors, alphas], [weights, torch.ones_like(alphas)])

    return Timing(case.title, name, _median_ms(forward, num_runs), _median_ms(forward_backward, num_runs))


def _median_ms(function: Callable[[], None], num_runs: int) -> float:
    function()
    times = []
    for _ in range(num_runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _print(timings: list[Timing], console: Console) -> None:
    table = Table(title="Rendering, medians in ms")
    for column in ("Gaussians", "renderer", "forward", "forward + backward"):
        table.add_column(column, justify="left" if column in ("Gaussians", "renderer") else "right")
    last_case = None
    for timing in timings:
        shown = timing.case if timing.case != last_case else ""
        table.add_row(shown, timing.renderer, f"{timing.forward_ms:.1f}", f"{timing.forward_backward_ms:.1f}")
        last_case = timing.case
    console.print(table)
    ratio = ratio_to_vectorized(timings)
    if ratio is not None:
        console.print(f"Forward + backward at {RATIO_CASE.title}: {ratio:.0f} times faster than vectorized torch.")
