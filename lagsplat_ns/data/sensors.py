"""Inputs that were measured while a clip was filmed, read from a table beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.data.errors import data_error
from lagsplat_ns.data.sources import TIMES_FILE, ClipSource
from lagsplat_ns.data.tables import Table, read_table

__all__ = ["SensorLog", "find_sensor_file", "read_sensors"]

Interpolation = Literal["linear", "hold"]

_PRESSURES = ("Pa", "hPa", "kPa", "MPa", "bar", "mbar", "psi")
_FORCES = ("Nm", "mNm", "kNm", "N", "mN", "kN", "lbf")
_ELECTRIC = ("V", "mV", "kV", "A", "mA", "uA", "W", "mW", "kW", "pwm", "duty", "percent")
_UNITS = {unit.lower(): unit for unit in _PRESSURES + _FORCES + _ELECTRIC}
_TIME_NAMES = frozenset(["t", "time", "timestamp", "timestamps", "seconds", "sec", "elapsed", "zeit"])
_TIME_UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
_EPOCH_SECONDS = 1e8  # a clip does not last three years: larger times are dates


@dataclass(frozen=True)
class SensorLog:
    """Measured inputs over time.

    times_s: seconds since the first frame in use, strictly increasing. values: one column per input, in its own unit.
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
    file: Path, columns: tuple[str, ...], interpolation: Interpolation, offset_s: float, duration_s: float
) -> tuple[SensorLog | None, list[str]]:
    """The measured inputs of a clip, and notes about what was taken, left out or mended.

    columns: ("auto",) takes the columns named with the unit of an input; else the wanted names. offset_s, duration_s:
    where the used part of the clip begins on the clip's own clock, and how long it lasts.

    Raises: DataError.
    """
    table = read_table(file)
    time_column = _time_column(table)
    automatic = columns == ("auto",)
    chosen = _choose(table, time_column, None if automatic else columns)
    others = [name for k, name in enumerate(table.names) if k not in chosen and k != time_column]
    if not chosen:
        note = (
            f"{file.name} holds no measured inputs (columns {', '.join(table.names)}): it is not used. Inputs are "
            "columns named with their unit, such as pressure_kPa or torque_Nm; or name them with --sensor-columns."
        )
        return None, [note]
    if time_column is None:
        raise data_error(
            f"A sensor log must have a time column, but {file} has {', '.join(table.names)}.",
            "Name the column with seconds since the first frame time_s.",
        )
    if not table.rows:
        raise data_error(
            f"A sensor log must have rows, but {file} has only its first line.", "Log again, or remove it."
        )

    notes = [f"Inputs from {file.name}: {', '.join(table.names[k] for k in chosen)}."]
    if others:
        notes[0] += f" Left out: {', '.join(others)}."
    times_s = table.numbers(time_column, allow_missing=False) * _time_unit(table.names[time_column])
    _check_increasing(times_s, table, time_column)
    if times_s[0] > _EPOCH_SECONDS:
        notes.append(f"{file.name} gives dates, not seconds: its first row is taken as the clip's first frame.")
        times_s = times_s - times_s[0]
    times_s = times_s - offset_s
    _check_overlap(times_s, duration_s, table, notes)
    values = np.stack([_mended(table, k, times_s, notes) for k in chosen], axis=1)
    names = tuple(table.names[k] for k in chosen)
    return SensorLog(times_s, values, names, tuple(_unit(name) for name in names), interpolation), notes


def _split_unit(name: str) -> tuple[str, str]:
    """A column name's stem and the unit behind it: pressure_kPa, pressure [kPa], pressure (kPa)."""
    cleaned = name.replace("[", "_").replace("]", "").replace("(", "_").replace(")", "").replace(" ", "_")
    stem, _, unit = cleaned.strip("_").rpartition("_")
    return stem.rstrip("_"), unit


def _unit(name: str) -> str:
    """The input unit a column is named with, or an empty text."""
    stem, unit = _split_unit(name)
    if unit == "%":
        return "percent"
    return _UNITS.get(unit.lower(), "") if stem else ""


def _time_column(table: Table) -> int | None:
    for k, name in enumerate(table.names):
        stem, unit = _split_unit(name.lower())
        if name.lower() in _TIME_NAMES or (stem in _TIME_NAMES and unit in _TIME_UNITS):
            return k
    return None


def _time_unit(name: str) -> float:
    """Seconds per unit of the time column."""
    stem, unit = _split_unit(name.lower())
    return _TIME_UNITS.get(unit, 1.0) if stem else 1.0


def _choose(table: Table, time_column: int | None, wanted: tuple[str, ...] | None) -> list[int]:
    if wanted is None:
        return [k for k, name in enumerate(table.names) if k != time_column and _unit(name)]
    missing = [name for name in wanted if name not in table.names]
    if missing:
        raise data_error(
            f"`sensor_columns` must name columns of {table.file}, but it has no {', '.join(missing)}.",
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
