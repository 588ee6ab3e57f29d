"""Inputs and other quantities that were measured while a clip was filmed, read from a table beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64

from lagsplat_ns.data.errors import data_error
from lagsplat_ns.data.sources import TIMES_FILE, ClipSource
from lagsplat_ns.data.tables import Table, read_table
from lagsplat_ns.data.units import TIME_UNITS, column_unit, find_time_column, time_unit

__all__ = [
    "SensorLog",
    "find_sensor_file",
    "read_measurements",
    "read_sensors",
    "shared_inputs",
]

Interpolation = Literal["linear", "hold"]

_EPOCH_SECONDS = 1e8  # a clip does not last three years: larger times are dates
_EPOCH_UNITS = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"))  # dates of our century, without a unit in the header


@dataclass(frozen=True)
class SensorLog:
    """Measured quantities over time.

    times_s: seconds since the first frame in use, strictly increasing. values: one column per input, in its own unit.
    names as in the header, each with its unit.
    """

    times_s: Float64[np.ndarray, " K"]
    values: Float64[np.ndarray, "K m"]
    names: tuple[str, ...]
    units: tuple[str, ...]
    interpolation: Interpolation = "linear"

    def at(self, times_s: Float64[np.ndarray, "*B"]) -> Float64[np.ndarray, "*B m"]:
        """Inputs at any times; before the first and after the last row, the value of that row."""
        times_s = np.asarray(times_s, dtype=np.float64)
        if self.interpolation == "hold":
            rows = np.clip(np.searchsorted(self.times_s, times_s, side="right") - 1, 0, len(self.times_s) - 1)
            return self.values[rows]
        columns = [np.interp(times_s, self.times_s, column) for column in self.values.T]
        return np.stack(columns, axis=-1)

    def is_constant(self, duration_s: float) -> Bool[np.ndarray, " m"]:
        """Which columns never change from the first frame to `duration_s`: how such an input acts cannot be told."""
        inside = self.at(np.concatenate([[0.0, duration_s], np.clip(self.times_s, 0.0, duration_s)]))
        return np.ptp(inside, axis=0) <= 1e-9 * np.abs(inside).max(axis=0)

    def picked(self, names: tuple[str, ...]) -> SensorLog:
        """The same log with its columns in another order."""
        order = [self.names.index(name) for name in names]
        return SensorLog(
            self.times_s, self.values[:, order], names, tuple(self.units[k] for k in order), self.interpolation
        )

    def save(self, file: Path) -> None:
        """Writes an .npz file that needs no pickle to be read."""
        np.savez(
            file,
            times_s=self.times_s,
            values=self.values,
            names=np.array(self.names),
            units=np.array(self.units),
            interpolation=np.array(self.interpolation),
        )

    @classmethod
    def load(cls, file: Path) -> SensorLog:
        """The log that `save` wrote."""
        with np.load(file) as data:
            return cls(
                data["times_s"],
                data["values"],
                tuple(str(name) for name in data["names"]),
                tuple(str(unit) for unit in data["units"]),
                "hold" if str(data["interpolation"]) == "hold" else "linear",
            )


def find_sensor_file(source: ClipSource) -> Path | None:
    """The table that belongs to a clip: same name as the clip with .csv, else sensors.csv in its folder."""
    folder = source.folder
    beside = folder.parent / f"{folder.name}.csv" if source.pictures else source.path.with_suffix(".csv")
    for file in (beside, folder / "sensors.csv"):
        if file.is_file() and file.name != TIMES_FILE:
            return file
    return None


def read_sensors(
    file: Path,
    columns: tuple[str, ...],
    interpolation: Interpolation,
    offset_s: float,
    duration_s: float,
    measurement_columns: tuple[str, ...] = (),
) -> tuple[SensorLog | None, list[str]]:
    """The measured inputs of a clip, and notes about what was taken, left out or mended.

    columns: ("auto",) takes the columns named with the unit of an input, ("none",) nothing; else the wanted names.
    offset_s, duration_s: where the used part of the clip begins on the clip's own clock, and how long it lasts.
    measurement_columns are no inputs.

    Raises: DataError.
    """
    if columns == ("none",):
        return None, []
    table = read_table(file)
    time_column = find_time_column(table.names)
    automatic = columns == ("auto",)
    both = sorted(set(columns) & set(measurement_columns))
    if both:
        raise data_error(
            f"A column must be an input or a measurement, but {', '.join(both)} of {file} is named as both.",
            "Take it out of `sensor_columns` or out of `measurement_columns`.",
        )
    chosen = _choose(table, time_column, None if automatic else columns, measurement_columns)
    used = [*chosen, *(k for k, name in enumerate(table.names) if name in measurement_columns)]
    others = [name for k, name in enumerate(table.names) if k not in used and k != time_column]
    if not chosen and measurement_columns:
        return None, []
    if not chosen:
        note = (
            f"{file.name} holds no measured inputs (columns {', '.join(table.names)}): it is not used. Inputs are "
            "columns named with their unit, such as pressure_kPa or torque_Nm; or name them with --sensor-columns."
        )
        return None, [note]
    notes = [f"Inputs from {file.name}: {', '.join(table.names[k] for k in chosen)}."]
    if others:
        notes[0] += f" Left out: {', '.join(others)}."
    log = _read_log(table, time_column, chosen, interpolation, offset_s, duration_s, notes)
    still = [name for name, is_still in zip(log.names, log.is_constant(duration_s)) if is_still]
    for name in still:
        value = float(log.at(np.zeros(1))[0, log.names.index(name)])
        notes.append(
            f"{name} is {value:g} throughout the clip: how it acts cannot be told from it, and it is left out of the "
            "fit."
        )
    return log, notes


def read_measurements(
    file: Path, columns: tuple[str, ...], offset_s: float, duration_s: float
) -> tuple[SensorLog, list[str]]:
    """Quantities that were measured and do not act on the thing (an angle, a position), and notes about them.

    Raises: DataError.
    """
    table = read_table(file)
    chosen = _choose(table, None, columns, (), "measurement_columns")
    notes = [f"Measurements from {file.name}: {', '.join(columns)}."]
    return _read_log(table, find_time_column(table.names), chosen, "linear", offset_s, duration_s, notes), notes


def shared_inputs(logs: Sequence[tuple[str, SensorLog | None]]) -> tuple[tuple[str, ...], list[str]]:
    """The inputs that all clips of one thing have in common, and notes; logs: a clip's name and its log.

    Clips without a log count as not driven: their inputs are zero.

    Raises: DataError if two clips were logged with different inputs.
    """
    known = [(clip, log) for clip, log in logs if log is not None]
    if not known:
        return (), []
    first, names = known[0][0], known[0][1].names
    for clip, log in known[1:]:
        if sorted(log.names) != sorted(names):
            raise data_error(
                f"All clips of one thing must be logged with the same inputs, but {clip} has {', '.join(log.names)} "
                f"and {first} has {', '.join(names)}.",
                "Choose columns that all logs have with --sensor-columns, or train on one clip: --data FILE.",
            )
    missing = [clip for clip, log in logs if log is None]
    if not missing:
        return names, []
    return names, [f"No sensor log for {', '.join(missing)}: {', '.join(names)} counts as zero there."]


def _read_log(
    table: Table,
    time_column: int | None,
    chosen: list[int],
    interpolation: Interpolation,
    offset_s: float,
    duration_s: float,
    notes: list[str],
) -> SensorLog:
    file = table.file
    if time_column is None:
        raise data_error(
            f"A sensor log must have a time column, but {file} has {', '.join(table.names)}.",
            "Name the column with seconds since the first frame time_s.",
        )
    if not table.rows:
        raise data_error(
            f"A sensor log must have rows, but {file} has only its first line.", "Log again, or remove it."
        )
    times_s = table.numbers(time_column, allow_missing=False) * time_unit(table.names[time_column])
    _check_increasing(times_s, table, time_column)
    if times_s[0] > _EPOCH_SECONDS:
        unit = next((unit for size, unit in _EPOCH_UNITS if times_s[0] > size), "s")
        if unit != "s":
            times_s = times_s - times_s[0]
            times_s *= TIME_UNITS[unit]
        named = "" if unit == "s" else f" in {unit}"
        notes.append(f"{file.name} gives dates{named}, not seconds: its first row is taken as the clip's first frame.")
        times_s = times_s - times_s[0]
    times_s = times_s - offset_s
    _check_overlap(times_s, duration_s, table, notes)
    values = np.stack([_mended(table, k, times_s, notes) for k in chosen], axis=1)
    names = tuple(table.names[k] for k in chosen)
    return SensorLog(times_s, values, names, tuple(column_unit(name) for name in names), interpolation)


def _choose(
    table: Table,
    time_column: int | None,
    wanted: tuple[str, ...] | None,
    others: tuple[str, ...],
    option: str = "sensor_columns",
) -> list[int]:
    if wanted is None:
        return [
            k for k, name in enumerate(table.names) if k != time_column and name not in others and column_unit(name)
        ]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        raise data_error(
            f"`{option}` must name columns of {table.file}, but it has no {', '.join(missing)}.",
            f"It has: {', '.join(table.names)}.",
        )
    return [table.names.index(name) for name in wanted]


def _check_increasing(times_s: np.ndarray, table: Table, time_column: int) -> None:
    falls = np.flatnonzero(np.diff(times_s) <= 0)
    if len(falls):
        k, name = int(falls[0]), table.names[time_column]
        raise data_error(
            f"`{name}` must increase, but row {table.line(k + 1)} ({times_s[k + 1]:.3f} s) follows "
            f"row {table.line(k)} ({times_s[k]:.3f} s) in {table.file}.",
            "Sort the rows by time, or remove the duplicate.",
        )


def _check_overlap(times_s: np.ndarray, duration_s: float, table: Table, notes: list[str]) -> None:
    first, last = float(times_s[0]), float(times_s[-1])
    if last < 0 or first > duration_s:
        raise data_error(
            f"A sensor log must cover the clip, but {table.file} runs from {first:.3f} s to {last:.3f} s and the part "
            f"of the clip in use from 0 s to {duration_s:.3f} s (seconds since its first frame).",
            "Shift the log's times so that 0 is the clip's first frame, or give their unit (time_s, time_ms).",
        )
    covered = (min(last, duration_s) - max(first, 0.0)) / max(duration_s, 1e-9)
    if covered < 0.98:
        notes.append(
            f"{table.file.name} covers {covered:.0%} of the clip; beyond it the first and last values are held."
        )


def _mended(table: Table, column: int, times_s: np.ndarray, notes: list[str]) -> np.ndarray:
    """A column's numbers, with missing ones filled in between their neighbors."""
    numbers = table.numbers(column, allow_missing=True)
    known = np.isfinite(numbers)
    if not known.any():
        raise data_error(
            f"An input must have values, but column {table.names[column]} of {table.file} has none.",
            "Leave the column out with --sensor-columns, or log it again.",
        )
    if not known.all():
        notes.append(
            f"{int((~known).sum())} of {len(known)} values of {table.names[column]} are missing in {table.file.name}: "
            "filled in from their neighbors."
        )
    return np.interp(times_s, times_s[known], numbers[known])
