"""What a training achieved, in figures: pictures, forecast, coordinates, time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from rich.console import Console
from rich.table import Table


@dataclass
class FitReport:
    """Figures of one training.

    psnr, psnr_moving: dB, mean over training frames, of all and of moving pixels; forecast_error and its two
    baselines: root mean square over the held-out frames, as a share of the range of motion in the training frames, in
    the picture (None without held-out frames); period_s: time of one swing in the longest undisturbed stretch, None
    where nothing swings.
    """

    latent_dim: int
    num_bases: int
    num_gaussians: int
    psnr: float
    psnr_moving: float
    forecast_error: float | None
    frozen_error: float | None
    constant_velocity_error: float | None
    forecast_seconds: float
    period_s: float | None
    disturbed_s: list[tuple[float, float]]
    seconds: dict[str, float]
    notes: list[str] = field(default_factory=list)


def swing_period(times_s: Float[np.ndarray, " T"], q: Float[np.ndarray, " T"]) -> float | None:
    """Mean time between crossings of the middle in one direction; None for fewer than two swings."""
    middle = 0.5 * (np.quantile(q, 0.02) + np.quantile(q, 0.98))
    above = q > middle
    rising = np.nonzero(~above[:-1] & above[1:])[0]
    if len(rising) < 3:
        return None
    share = (middle - q[rising]) / (q[rising + 1] - q[rising])
    crossings = times_s[rising] + share * (times_s[rising + 1] - times_s[rising])
    return float((crossings[-1] - crossings[0]) / (len(crossings) - 1))


def longest_run(is_used: Bool[np.ndarray, " T"]) -> slice:
    """The longest stretch of used frames without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_used.astype(int), [0]])))
    if len(edges) == 0:
        return slice(0, 0)
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    return slice(int(begins[longest]), int(ends[longest]))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def print_report(report: FitReport, console: Console) -> None:
    """The summary at the end of a training."""
    table = Table(title="lagsplat", show_header=False, title_justify="left")
    table.add_row("latent coordinates d", f"{report.latent_dim} (on {report.num_bases} motion base(s))")
    table.add_row("Gaussians", str(report.num_gaussians))
    table.add_row("PSNR, training frames", f"{report.psnr:.2f} dB")
    table.add_row("PSNR, moving pixels", f"{report.psnr_moving:.2f} dB")
    if report.forecast_error is not None:
        table.add_row(
            f"forecast error, held-out {report.forecast_seconds:.1f} s",
            f"{_percent(report.forecast_error)} of the range of motion "
            f"(frozen {_percent(report.frozen_error)}, constant velocity {_percent(report.constant_velocity_error)})",
        )
    if report.period_s is not None:
        table.add_row("period", f"{report.period_s:.4f} s")
    for begin, end in report.disturbed_s:
        table.add_row("left out as disturbed", f"{begin:.2f} s to {end:.2f} s")
    for name, value in report.seconds.items():
        table.add_row(f"time, {name}", f"{value:.1f} s")
    for note in report.notes:
        table.add_row("note", note)
    console.print(table)


def write_report(report: FitReport, path: Path) -> None:
    """The same figures as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(report), indent=2) + "\n")
