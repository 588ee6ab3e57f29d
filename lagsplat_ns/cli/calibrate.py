"""`lagsplat calibrate`: newtons for pushes, from one known push or from a known length beside a logged torque."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from jaxtyping import Float64

if TYPE_CHECKING:
    from lagsplat_ns.simulation.calibration import Calibration
    from lagsplat_ns.simulator import Simulator

_FRAME_RATE = 30.0
_MISFIT = 0.1


@dataclass(frozen=True)
class MeasuredPush:
    """One push from rest, and the measured path of a point: times_s [K], track [K, 2] pixels; force in newtons."""

    pixel: tuple[float, float]
    force: tuple[float, float]
    start_s: float
    end_s: float
    times_s: Float64[np.ndarray, " K"]
    track: Float64[np.ndarray, "K 2"]

    @property
    def watch(self) -> tuple[float, float]:
        """Where the point is at rest, pixels: the mean of what was measured before the push."""
        x, y = self.track[self.times_s <= max(self.start_s, self.times_s[0])].mean(0)
        return float(x), float(y)

    def response(self, times_s: Float64[np.ndarray, " T"], /) -> Float64[np.ndarray, "T 2"]:
        """The measured path at any times, pixels."""
        return np.stack([np.interp(times_s, self.times_s, column) for column in self.track.T], axis=1)


@dataclass
class Calibrate:
    """Sets how many newtons a push is; `Simulator.step` takes newtons from then on."""

    config: Annotated[Path, tyro.conf.Positional]
    """the config.yml of a training"""
    pixel: tuple[float, float] | None = None
    """where the known push acted: x and y in pixels of the filming camera's picture, the thing at rest"""
    force_n: tuple[float, float] | None = None
    """that push in newtons, x to the right and y down"""
    start_s: float = 0.0
    """when it began, seconds on the clock of --response"""
    end_s: float | None = None
    """when it ended, seconds"""
    response: Path | None = None
    """a CSV file with the measured path of one point of the thing, from rest: columns time, x and y in pixels"""
    length_m: float | None = None
    """a length on the thing or beside it, in meters (with --between): enough where a torque in Nm was logged"""
    between: tuple[float, float, float, float] | None = None
    """the ends of that length in the picture, x1 y1 x2 y2 in pixels"""

    def main(self) -> None:
        """Finds the factor and writes calibration.json beside the config."""
        from rich.console import Console

        from lagsplat_ns.simulation.calibration import save_calibration
        from lagsplat_ns.simulator import Simulator

        sim = Simulator.load(self.config)
        sim.calibration = None
        console = Console()
        calibration, notes = self._by_push(sim) if self.response is not None else self._by_length(sim)
        file = save_calibration(calibration, self.config.parent)
        console.print(f"One picture unit of force is {calibration.newtons_per_unit:.4g} N ({calibration.source}).")
        if calibration.kilograms is not None:
            console.print(f"The moving thing has {calibration.kilograms:.4g} kg.")
        for note in notes:
            console.print(f"Note: {note}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"{file}: pushes are in newtons from now on.", soft_wrap=True)

    def _meters_per_unit(self, sim: Simulator) -> float | None:
        if (self.length_m is None) != (self.between is None):
            raise ValueError(
                "A length must come with its two ends, but only one of --length-m and --between was given.\n"
                "  Add --length-m METERS --between X1 Y1 X2 Y2."
            )
        if self.length_m is None or self.between is None:
            return None
        x1, y1, x2, y2 = self.between
        pixels = float(np.hypot(x2 - x1, y2 - y1))
        if not (self.length_m > 0 and pixels > 0):
            raise ValueError(
                f"A length must be positive, but is {self.length_m} m over {pixels} pixels.\n  Give two different ends."
            )
        return self.length_m / pixels * sim.filming_camera.pixels_per_unit

    def _by_length(self, sim: Simulator) -> tuple[Calibration, list[str]]:
        from lagsplat_ns.simulation.input_scale import calibration_from, input_scales

        meters = self._meters_per_unit(sim)
        calibration, notes = calibration_from(input_scales(sim.scene), meters)
        if calibration is None:
            told = " ".join(notes) or "it was trained without a log of a force or a torque."
            raise ValueError(
                f"A calibration needs one known push, or a measured force or torque, but: {told}\n"
                "  Add --pixel X Y --force-n FX FY --start-s S --end-s S --response TRACK.csv, or with a logged torque "
                "--length-m METERS --between X1 Y1 X2 Y2."
            )
        return calibration, notes

    def _by_push(self, sim: Simulator) -> tuple[Calibration, list[str]]:
        from lagsplat_ns.simulation.calibration import Calibration

        if self.pixel is None or self.force_n is None or self.end_s is None or self.response is None:
            raise ValueError(
                "A known push must have a pixel, a force and an end, but one of them is missing.\n"
                "  Add --pixel X Y --force-n FX FY --end-s SECONDS."
            )
        if self.force_n == (0.0, 0.0) or not self.end_s > self.start_s:
            raise ValueError(
                f"A known push must have a force and last, but is {self.force_n} N from {self.start_s} s to "
                f"{self.end_s} s.\n  Correct --force-n, --start-s and --end-s."
            )
        times_s, track = read_track(self.response)
        push = MeasuredPush(self.pixel, self.force_n, self.start_s, self.end_s, times_s, track)
        gain, error, is_outside = fit_gain(sim, push)
        notes = [f"The measured path is explained to {error:.1%} of its range."]
        if error > _MISFIT:
            notes.append("That is poor: check the pixel, the times, and that the thing was at rest.")
        if is_outside:
            notes.append("The push drove the thing beyond what the clips showed: a weaker one calibrates better.")
        source = f"push of ({self.force_n[0]:g}, {self.force_n[1]:g}) N, answer in {self.response.name}"
        return Calibration(1.0 / gain, source, self._meters_per_unit(sim)), notes


def read_track(file: Path) -> tuple[Float64[np.ndarray, " K"], Float64[np.ndarray, "K 2"]]:
    """Times in seconds and positions in pixels from a CSV file with columns time, x and y.

    Raises: DataError, MissingDataError.
    """
    from lagsplat_ns.data.series import SeriesColumns, read_series

    series = read_series(file, SeriesColumns(states=("x", "y"), rates=("none",), inputs=("none",)), from_zero=False)
    return series.times_s, series.states


def fit_gain(sim: Simulator, push: MeasuredPush) -> tuple[float, float, bool]:
    """Picture units per newton, the path error that is left over the range, and whether the answer left what was seen.

    A weak push first, whose answer is proportional to it; then secant steps on the whole path.

    Raises: ValueError if the push meets the background or moves nothing.
    """
    from lagsplat_ns.evaluation import answer, path_error

    sim.rest()
    if sim.grab(push.pixel).is_empty:
        raise ValueError(
            f"A push must meet the moving thing, but pixel {push.pixel} shows only background at rest.\n"
            "  Choose another --pixel."
        )
    first, last = max(float(push.times_s[0]), 0.0), float(push.times_s[-1])
    if last <= push.start_s:
        raise ValueError(
            f"The measured path must go on after the push began, but ends at {last:.3f} s before {push.start_s:.3f} s."
            "\n  Put --start-s on the clock of --response."
        )
    times = np.arange(1, round((last - first) * _FRAME_RATE) + 1) / _FRAME_RATE + first
    true, rest = push.response(times), np.array(push.watch)
    weak = 0.02 / float(np.hypot(*push.force))
    small = answer(sim, push, push.watch, times, weak) - rest
    size = float((small**2).sum())
    if size < 1e-12:
        raise ValueError(
            f"A push must move the point that is watched, but the one at {push.watch} does not move.\n"
            "  Check --pixel and --force-n, and that --response is the path of a point of the thing."
        )
    gain = weak * float((small * (true - rest)).sum()) / size
    for _ in range(12):
        here, more = (answer(sim, push, push.watch, times, factor * gain) for factor in (1.0, 1.01))
        slope = (more - here) / 0.01
        change = float((slope * (true - here)).sum() / (slope**2).sum())
        gain *= 1.0 + float(np.clip(change, -0.5, 1.0))
        if abs(change) < 1e-4:
            break
    error = path_error(answer(sim, push, push.watch, times, gain), true)
    is_outside = _leaves_seen(sim, push, times, gain)
    return gain, error, is_outside


def _leaves_seen(sim: Simulator, push: MeasuredPush, times_s: np.ndarray, gain: float) -> bool:
    sim.rest()
    grip = sim.grab(push.pixel)
    for time_s in times_s:
        is_on = push.start_s <= sim.time_s < push.end_s
        force = (gain * push.force[0], gain * push.force[1])
        sim.step(float(time_s) - sim.time_s, forces=[(grip, force)] if is_on else [])
        if sim.is_outside_seen:
            return True
    return False
