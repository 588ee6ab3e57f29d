"""Time series of a thing that was measured instead of filmed: states, their rates and inputs from a table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.data.errors import MissingDataError, data_error
from lagsplat_ns.data.tables import Table, read_table
from lagsplat_ns.data.units import column_unit, find_time_column, time_unit

__all__ = ["Series", "SeriesColumns", "read_series"]

MIN_ROWS = 40
_RATE = re.compile(r"^(vel|velocity|rate|speed|omega|qd|dq|dot)|(_dot|_rate|_vel|_velocity)(_|\d|$)", re.IGNORECASE)
_INPUT = re.compile(r"^(tau|torque|force|pressure|input|u|pd|pwm|motor|voltage|current)(_|\d|$)", re.IGNORECASE)
_STATE = re.compile(r"^(pos|position|angle|theta|phi|q|x|y|z|state)(_|\d|$)", re.IGNORECASE)


@dataclass(frozen=True)
class SeriesColumns:
    """Which columns mean what; None is found by name. rate_hz: rows per second of a table without times."""

    time: str | None = None
    states: tuple[str, ...] | None = None
    rates: tuple[str, ...] | None = None
    inputs: tuple[str, ...] | None = None
    rate_hz: float | None = None


@dataclass(frozen=True)
class Series:
    """States over time, in double precision. times_s: seconds since the first row, strictly increasing.

    rates: measured rates of the states, or None; inputs have no columns where none were measured.
    """

    file: Path
    times_s: Float64[np.ndarray, " T"]
    states: Float64[np.ndarray, "T s"]
    rates: Float64[np.ndarray, "T s"] | None
    inputs: Float64[np.ndarray, "T m"]
    state_names: tuple[str, ...]
    input_names: tuple[str, ...]
    notes: list[str] = field(default_factory=list)

    def after(self, start_s: float) -> Series:
        """The rows from a time on, with times that count from the first of them.

        Raises: DataError if too few are left.
        """
        kept = self.times_s >= start_s
        if kept.sum() < MIN_ROWS:
            raise data_error(
                f"A series must have {MIN_ROWS} rows or more, but {self.file} has {int(kept.sum())} "
                f"after {start_s:g} s.",
                "Give an earlier --start-s.",
            )
        times_s = self.times_s[kept]
        rates = None if self.rates is None else self.rates[kept]
        return replace(
            self, times_s=times_s - times_s[0], states=self.states[kept], rates=rates, inputs=self.inputs[kept]
        )


def read_series(file: Path, columns: SeriesColumns, *, from_zero: bool = True) -> Series:
    """The series in a CSV or MATLAB file; from_zero: times count from the first row, else they are as they stand.

    Raises: DataError, MissingDataError.
    """
    file = Path(file).expanduser()
    if not file.is_file():
        raise MissingDataError(
            f"A series must be a CSV or .mat file, but there is no file at {file}.\n  Check the spelling."
        )
    table = _mat_table(file) if file.suffix.lower() == ".mat" else read_table(file, "table")
    if len(table.rows) < MIN_ROWS:
        count = len(table.rows)
        came = "has only its first line" if count == 0 else f"has {count}"
        raise data_error(f"A series must have {MIN_ROWS} rows or more, but {file} {came}.", "Log longer.")
    time_column = _find_time(table, columns)
    notes: list[str] = []
    inputs = _chosen(table, columns.inputs, "--input-columns", _INPUT, time_column, with_units=True)
    rates = _chosen(table, columns.rates, "--rate-columns", _RATE, time_column, taken=inputs)
    taken = {*inputs, *rates, *([] if time_column is None else [time_column])}
    states = _chosen(table, columns.states, "--state-columns", _STATE, time_column, taken=list(taken))
    if not states:
        raise data_error(
            f"A series must have states, but none of the columns of {file} is named like one "
            f"({', '.join(table.names)}).",
            "Name them: --state-columns COLUMN [COLUMN ...]",
        )
    if rates and len(rates) != len(states):
        if columns.rates is not None:
            raise data_error(
                f"There must be one rate per state, but there are {len(rates)} rates and {len(states)} states.",
                "Name as many --rate-columns as --state-columns, in the same order, or none.",
            )
        rates = []

    times_s = _times(table, time_column, columns.rate_hz, notes)
    if from_zero:
        times_s = times_s - times_s[0]
    used = [*states, *rates, *inputs]
    notes.insert(0, f"States {_listed(table, states)}; inputs {_listed(table, inputs)}; rates {_listed(table, rates)}.")
    left = [name for k, name in enumerate(table.names) if k not in used and k != time_column]
    if left:
        notes.append(f"Left out: {', '.join(left)}.")
    values = np.stack([_filled(table, k, times_s, notes) for k in used], axis=1)
    a, b = len(states), len(states) + len(rates)
    return Series(
        file,
        times_s,
        values[:, :a],
        values[:, a:b] if rates else None,
        values[:, b:],
        tuple(table.names[k] for k in states),
        tuple(table.names[k] for k in inputs),
        notes,
    )


def _find_time(table: Table, columns: SeriesColumns) -> int | None:
    if columns.time is not None:
        return _index(table, columns.time, "--time-column")
    found = find_time_column(table.names)
    if found is None and columns.rate_hz is None:
        raise data_error(
            f"A series must have a time column, but {table.file} has {', '.join(table.names)}.",
            "Name it with --time-column, or give the rows per second: --rate-hz 30",
        )
    return found


def _chosen(
    table: Table,
    wanted: tuple[str, ...] | None,
    option: str,
    pattern: re.Pattern[str],
    time_column: int | None,
    *,
    taken: list[int] | None = None,
    with_units: bool = False,
) -> list[int]:
    """Columns that are named by the user, else those whose names say so."""
    if wanted is not None:
        return [_index(table, name, option) for name in wanted if name.lower() != "none"]
    return [
        k
        for k, name in enumerate(table.names)
        if k != time_column and k not in (taken or []) and (pattern.search(name) or (with_units and column_unit(name)))
    ]


def _index(table: Table, name: str, option: str) -> int:
    if name not in table.names:
        raise data_error(
            f"`{option}` must name columns of {table.file}, but it has no {name}.", f"It has: {', '.join(table.names)}."
        )
    return table.names.index(name)


def _times(table: Table, time_column: int | None, rate_hz: float | None, notes: list[str]) -> np.ndarray:
    if time_column is None:
        if rate_hz is None or not rate_hz > 0:
            raise data_error(f"`--rate-hz` must be positive, but is {rate_hz}.", "Give the rows per second.")
        notes.append(f"No time column: rows are taken to be 1/{rate_hz:g} s apart.")
        return np.arange(len(table.rows)) / rate_hz
    name = table.names[time_column]
    times_s = table.numbers(time_column, allow_missing=False) * time_unit(name)
    falls = np.flatnonzero(np.diff(times_s) <= 0)
    if len(falls):
        k = int(falls[0])
        raise data_error(
            f"`{name}` must increase, but row {table.line(k + 1)} ({times_s[k + 1]:.6g} s) follows row "
            f"{table.line(k)} ({times_s[k]:.6g} s) in {table.file}.",
            "Sort the rows by time, or remove the duplicate.",
        )
    return times_s


def _filled(table: Table, column: int, times_s: np.ndarray, notes: list[str]) -> np.ndarray:
    numbers = table.numbers(column, allow_missing=True)
    known = np.isfinite(numbers)
    if known.sum() < MIN_ROWS:
        raise data_error(
            f"A column must have values, but {table.names[column]} of {table.file} has {int(known.sum())} of "
            f"{len(known)}.",
            "Leave the column out.",
        )
    if not known.all():
        notes.append(
            f"{int((~known).sum())} of {len(known)} values of {table.names[column]} are missing: filled in from their "
            "neighbors."
        )
        return np.interp(times_s, times_s[known], numbers[known])
    return numbers


def _listed(table: Table, chosen: list[int]) -> str:
    return ", ".join(table.names[k] for k in chosen) or "none"


def _mat_table(file: Path) -> Table:
    """The arrays of a MATLAB file as a table: a time array and the arrays of the same length, cells joined in order.

    Arrays that share a suffix (Time_id with Y_id) belong together; further suffixes follow in time.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        stored = loadmat(file)
    except (MatReadError, NotImplementedError, ValueError, OSError, TypeError) as error:
        raise data_error(
            f"A .mat file must be readable by scipy.io.loadmat (version 7 or older), but {file} is not ({error}).",
            "Save it with -v7 in MATLAB, or export CSV.",
        ) from error
    arrays = {name: _joined(value) for name, value in stored.items() if not name.startswith("__")}
    usable = {name: array for name, array in arrays.items() if array is not None and len(array) >= MIN_ROWS}
    timed = [name for name in usable if re.match(r"^t(ime)?(_|\d|$)", name, re.IGNORECASE)]
    parts: list[np.ndarray] = []
    names: list[str] = []
    for time_name in timed:
        suffix = time_name.partition("_")[2]
        fits = [n for n, a in usable.items() if n != time_name and n.partition("_")[2] == suffix]
        fits = [n for n in fits if len(usable[n]) == len(usable[time_name])]
        if not fits:
            continue
        these = ["time_s"]
        for name in fits:
            stem, width = name.partition("_")[0], usable[name].shape[1]
            these += [stem] if width == 1 else [f"{stem}_{k + 1}" for k in range(width)]
        if names and these != names:
            continue
        names = these
        parts.append(np.concatenate([usable[time_name], *(usable[n] for n in fits)], axis=1))
    if not parts:
        shapes = ", ".join(f"{name} {getattr(value, 'shape', '')}" for name, value in stored.items() if name[0] != "_")
        raise data_error(
            f"A .mat file must hold a time array and arrays of the same length, but {file} holds {shapes}.",
            "Name the time array time or Time_..., or export CSV.",
        )
    rows = np.concatenate(sorted(parts, key=lambda part: float(part[0, 0])))
    cells = [[repr(float(value)) for value in row] for row in rows]
    return Table(file, names, cells, list(range(1, len(cells) + 1)), False)


def _joined(value: object) -> np.ndarray | None:
    """An array [T, k] from a numeric array of any orientation, or from a cell of them."""
    if not isinstance(value, np.ndarray):
        return None
    if value.dtype == object:
        pieces = [_joined(item) for item in value.ravel()]
        known = [piece for piece in pieces if piece is not None]
        if not known or len(known) != len(pieces) or len({piece.shape[1] for piece in known}) != 1:
            return None
        return np.concatenate(known)
    if value.ndim != 2 or not np.issubdtype(value.dtype, np.number) or np.iscomplexobj(value):
        return None
    return np.asarray(value.T if value.shape[1] > value.shape[0] else value, dtype=np.float64)
