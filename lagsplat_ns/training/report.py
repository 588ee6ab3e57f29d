"""What a training achieved, in figures: pictures, forecast, coordinates, time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from rich.console import Console
from rich.table import Table

from lagsplat_ns.training.confidence import ClipForecast, CoordinateRange, InputEffect
from lagsplat_ns.training.measurements import MeasurementCheck

_EXPLAINED = 0.9
"""correlation of a measurement with what the coordinates make of it from which they explain it"""


@dataclass(frozen=True)
class Confidence:
    """How far a training can be trusted: held-out errors per clip, ranges that were seen, inputs, measurements."""

    forecasts: list[ClipForecast] = field(default_factory=list)
    coordinates: list[CoordinateRange] = field(default_factory=list)
    inputs: list[InputEffect] = field(default_factory=list)
    measurements: list[MeasurementCheck] = field(default_factory=list)

    def rows(self) -> list[tuple[str, str]]:
        """The same in words, for a table of two columns."""
        result = []
        if len(self.forecasts) > 1:
            for clip in self.forecasts:
                result.append((f"forecast error, {clip.clip}", f"{_percent(clip.error)} over {clip.seconds:.1f} s"))
        for k, seen in enumerate(self.coordinates, 1):
            text = f"q from {seen.low:.3g} to {seen.high:.3g}, {seen.picture_px:.1f} px in the picture"
            if not seen.is_excited:
                text += ": hardly excited, do not trust what depends on it"
            result.append((f"seen of coordinate {k}", text))
        if self.coordinates:
            result.append(("beyond that range", "extrapolated; Simulator.is_outside_seen tells"))
        result += [(f"input {known.name}", _input_words(known)) for known in self.inputs]
        result += [(f"measured {check.name}", _measurement_words(check)) for check in self.measurements]
        return result


def _input_words(known: InputEffect) -> str:
    if not known.high > known.low:
        return f"always {known.low:.3g}: how it acts cannot be told from these clips"
    text = f"{known.low:.3g} to {known.high:.3g}, force {known.force_share:.2g} of the others"
    if known.uncertainty is not None:
        text += f", effect known to {_percent(known.uncertainty)}"
    return text if known.is_identified else text + ": not exciting enough to be identified"


def _measurement_words(check: MeasurementCheck) -> str:
    text = f"{check.form}: to {_percent(check.train_error)} of its range in training frames"
    if check.error is not None and check.correlation is not None:
        text += f", held-out {_percent(check.error)} (correlation {check.correlation:.4f})"
    if check.forecast_error is not None:
        text += f", forecast {_percent(check.forecast_error)}"
    if abs(check.train_correlation) < _EXPLAINED:
        text += "; the coordinates do not explain it: another --pipeline.model.latent-dim may"
    return text


@dataclass
class FitReport:
    """Figures of one training.

    psnr, psnr_moving: dB, mean over training frames, of all and of moving pixels; forecast_error and its two
    baselines: root mean square over the held-out frames, as a share of the range of motion in the training frames, in
    the picture (None without held-out frames); period_s: time of one swing in the longest undisturbed stretch, None
    where nothing swings; confidence: how far it can be trusted; force_unit: of pushes.
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
    confidence: Confidence = field(default_factory=Confidence)
    force_unit: str = "picture units"


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
    for name, text in report.confidence.rows():
        table.add_row(name, text)
    table.add_row("unit of pushes", report.force_unit)
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
