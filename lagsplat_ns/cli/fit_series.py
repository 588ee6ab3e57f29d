"""`lagsplat fit-series`: the dynamics alone, from measured states instead of a video, against other predictors."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from lagsplat_ns.data.series_coordinates import Coordinates
    from lagsplat_ns.dynamics.forecasts import Predictor
    from lagsplat_ns.dynamics.identified import Identified
    from lagsplat_ns.dynamics.observed import ObservedPath

_HORIZONS_S = (2.0, 5.0)
_MOST_STARTS = 8
_MOST_ROWS = 4000
_PAST_RADIANS = 6.3
"""how much of the usual motion before a moment its state is read from"""


@dataclass
class FitSeries:
    """Finds the mechanism behind measured states, and forecasts the rows that were held out."""

    file: Annotated[Path, tyro.conf.Positional]
    """a CSV file (any separator) or a MATLAB .mat file"""
    state_columns: tuple[str, ...] = ()
    """columns that are the state (default: found by name, such as pos1, angle, x)"""
    rate_columns: tuple[str, ...] = ()
    """columns that are its rates: they are told apart from states, and compared with in the report"""
    input_columns: tuple[str, ...] = ()
    """columns that drive it (default: found by name or unit, such as torque, tau1, pressure_kPa); "none": none"""
    time_column: str | None = None
    """column with seconds (default: found by name)"""
    rate_hz: float | None = None
    """rows per second of a table without times"""
    angles: Literal["none", "absolute", "relative"] = "none"
    """states are angles (radians) of links hanging on each other: against a fixed direction, or against the link
    before; they may turn all the way round"""
    points: bool = False
    """states are x y pairs of the ends of such links, from the fixed end on"""
    latent_dim: int | None = None
    """use that many leading directions of the states as coordinates"""
    start_s: float = 0.0
    """leave out what comes before, seconds since the first row (a logger that starts before its sensors)"""
    held_out: float = 0.3
    """share of the rows, at the end, that is forecast"""
    neural_ode: bool = True
    """train an unconstrained neural ODE on the same rows, to compare with"""
    piece_periods: float = 3.0
    """the training part is fitted in pieces of about so many typical swings, each with a start of its own: what is
    chaotic, or passes through an unstable balance, cannot be followed for longer"""
    find_disturbed: bool = False
    """leave out spans that do not follow the physics of the rest (a hand, a blow that was not logged)"""
    output: Path | None = None
    """folder for series.json and series.png"""
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def main(self) -> None:
        """Reads, fits, compares, writes."""
        from rich.console import Console

        console = Console()
        observed, coordinates, notes, num_inputs = self._observed()
        with console.status("finding the mechanism"):
            identified = self._identified(observed, coordinates, num_inputs)
        with console.status("forecasting"):
            result = self._compared(identified, observed, num_inputs)
        result = {
            "file": self.file.name,
            "coordinates": list(coordinates.names),
            "rows": len(observed.times_s),
            "held_out_s": float(observed.times_s[-1] - observed.times_s[observed.fitted_frames - 1]),
            "residual_over_noise": identified.residual_rms,
            "noise": identified.noise.tolist(),
            **result,
            "seconds": self._seconds,
            "notes": [*notes, coordinates.note, *self._told(identified)],
        }
        console.print(_table(result))
        for note in result["notes"]:
            console.print(f"Note: {note}", highlight=False, markup=False)
        if self.output is not None:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / "series.json").write_text(json.dumps(result, indent=2) + "\n")
            _plot(self.output / "series.png", identified, observed, coordinates)
            console.print(f"{self.output / 'series.json'}, {self.output / 'series.png'}", soft_wrap=True)

    def _observed(self) -> tuple[ObservedPath, Coordinates, list[str], int]:
        import torch

        from lagsplat_ns.data.errors import data_error
        from lagsplat_ns.data.series import SeriesColumns, read_series
        from lagsplat_ns.data.series_coordinates import coordinates_of
        from lagsplat_ns.dynamics.logged_inputs import LoggedInputs
        from lagsplat_ns.dynamics.observed import ObservedPath

        if not 0.05 <= self.held_out <= 0.8:
            raise data_error(
                f"`--held-out` must lie between 0.05 and 0.8, but is {self.held_out:g}.", "Give 0.3 for the last 30 %."
            )
        columns = SeriesColumns(
            self.time_column,
            self.state_columns or None,
            self.rate_columns or None,
            self.input_columns or None,
            self.rate_hz,
        )
        series = read_series(self.file, columns).after(self.start_s)
        every = max(1, len(series.times_s) // _MOST_ROWS)
        times = torch.from_numpy(series.times_s[::every].copy())
        num_train = len(times) - round(self.held_out * len(times))
        coordinates = coordinates_of(
            series, num_train * every, angles=self.angles, is_points=self.points, latent_dim=self.latent_dim
        )
        inputs, num_inputs, notes = None, series.inputs.shape[1], list(series.notes)
        if every > 1:
            notes.append(f"Every {every}th row is used for the state, all rows for the inputs.")
        if num_inputs:
            inputs = LoggedInputs(torch.from_numpy(series.times_s), torch.from_numpy(series.inputs.copy()))
        q = torch.from_numpy(coordinates.q[::every].copy())
        return ObservedPath(times, q, inputs, num_train), coordinates, notes, num_inputs

    def _identified(self, observed: ObservedPath, coordinates: Coordinates, num_inputs: int) -> Identified:
        import torch

        from lagsplat_ns.dynamics.forecasts import in_pieces
        from lagsplat_ns.dynamics.free_metric import FreeMetric
        from lagsplat_ns.dynamics.metric import ConstantMetric
        from lagsplat_ns.dynamics.shooting import IdentifyOptions, identify

        begun, d = time.perf_counter(), observed.q.shape[-1]
        is_plain = d == 1 and not coordinates.is_chain
        metric = ConstantMetric(torch.eye(1, dtype=torch.float64)) if is_plain else FreeMetric(d, coordinates.is_chain)
        identified = identify(
            in_pieces(observed, self.piece_periods),
            metric,
            IdentifyOptions(
                find_disturbed=self.find_disturbed, periodic=tuple(range(d)) if coordinates.is_chain else ()
            ),
            num_inputs,
        )
        self._seconds["mechanism"] = time.perf_counter() - begun
        return identified

    def _told(self, identified: Identified) -> list[str]:
        """Notes of the identification; without a search for disturbances, rows between pieces are nothing to tell."""
        return [note for note in identified.notes if self.find_disturbed or not note.startswith("Left out")]

    def _compared(self, identified: Identified, observed: ObservedPath, num_inputs: int) -> dict[str, Any]:
        """Errors of all predictors over the whole held-out part and over windows in it."""
        import torch

        from lagsplat_ns.dynamics import forecasts

        n, times = observed.fitted_frames, observed.times_s
        predictors: dict[str, Predictor] = {
            "mechanism": forecasts.mechanism_predictor(identified, observed.inputs if num_inputs else None),
            "frozen": lambda start, _, ahead: start.q.expand(len(ahead), *start.q.shape),
            "constant velocity": lambda start, _, ahead: start.q + ahead[:, None, None] * start.qd,
            "linear ODE": forecasts.linear_ode(observed, num_inputs),
        }
        if self.neural_ode:
            predictors["neural ODE"] = self._neural(observed, num_inputs)
        rate = float((identified.scales.rate_noise / identified.scales.noise).max())  # rad/s of the usual motion
        past_s = min(max(_PAST_RADIANS / rate, 0.05), 2.0)
        errors: dict[str, dict[str, Any]] = {name: {} for name in predictors}
        begin, end = float(times[n - 1]), float(times[-1])
        spans = [("whole", end - begin, 1), *((f"{h:g} s", h, _MOST_STARTS) for h in _HORIZONS_S)]
        for label, horizon, count in spans:
            moments = forecasts.starts_between(begin, end, horizon, count)
            if not moments:
                continue
            start_s = torch.tensor(moments, dtype=torch.float64)
            start = forecasts.start_states(identified, observed, start_s, past_s)
            for name, predict in predictors.items():
                found = forecasts.horizon_errors(predict, start, start_s, observed, horizon)
                errors[name][label] = {
                    "median": _number(found.quantile(0.5)), "worst": _number(found.max()), "starts": len(moments)
                }  # fmt: skip
        return {"errors": errors}

    def _neural(self, observed: ObservedPath, num_inputs: int) -> Predictor:
        from lagsplat_ns.dynamics.neural_ode import identify_neural_ode

        begun = time.perf_counter()
        trained = identify_neural_ode([observed], num_inputs)
        self._seconds["neural ODE"] = time.perf_counter() - begun

        def predict(start: Any, start_s: Tensor, ahead_s: Tensor) -> Tensor:
            inputs = observed.inputs
            drive = None if not num_inputs or inputs is None else (lambda t: inputs(start_s + t))
            return trained.rollout(start, ahead_s, drive).q

        return predict


def _number(value: Tensor) -> float | None:
    """A figure for JSON; None for a forecast that left the range of numbers."""
    return float(value) if bool(value.isfinite()) else None


def _table(result: dict[str, Any]) -> Table:
    from rich.table import Table

    labels = list(next(iter(result["errors"].values())))
    table = Table(
        title=f"{result['file']}: forecast error on the held-out {result['held_out_s']:.1f} s, "
        "root mean square over the range",
        title_justify="left",
    )
    table.add_column("predictor")
    for label in labels:
        starts = result["errors"]["mechanism"][label]["starts"]
        table.add_column(label if starts == 1 else f"{label}, median (worst) of {starts}")
    for name, errors in result["errors"].items():
        table.add_row(name, *(_cell(errors[label]) for label in labels))
    return table


def _cell(error: dict[str, Any]) -> str:
    def percent(value: float | None) -> str:
        return "lost" if value is None or value > 1e3 else f"{100 * value:.3g} %"

    median = percent(error["median"])
    return median if error["starts"] == 1 else f"{median} ({percent(error['worst'])})"


def _plot(file: Path, identified: Identified, observed: ObservedPath, coordinates: Coordinates) -> None:
    """Measured and rolled coordinates over time; the held-out part is shaded."""
    from matplotlib.figure import Figure

    d = observed.q.shape[-1]
    figure = Figure(figsize=(9, 2.2 * d + 0.6), layout="constrained")
    times, n = observed.times_s.numpy(), observed.fitted_frames
    for k, axes in enumerate(figure.subplots(d, 1, sharex=True, squeeze=False)[:, 0]):
        axes.plot(times, observed.q[:, k], color="0.6", linewidth=2.5, label="measured")
        for piece in identified.paths:
            label = "mechanism" if piece is identified.paths[-1] else None
            axes.plot(piece.times_s, piece.q[:, k], color="tab:red", linewidth=1, label=label)
        axes.axvspan(times[n - 1], times[-1], color="0.93", zorder=0)
        low, high = float(observed.q[:, k].min()), float(observed.q[:, k].max())
        axes.set_ylim(low - 0.2 * (high - low), high + 0.2 * (high - low))
        axes.set_ylabel(coordinates.names[k])
    figure.axes[0].legend(loc="upper left")
    figure.axes[-1].set_xlabel("seconds")
    figure.savefig(file, dpi=110)
