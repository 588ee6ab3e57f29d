"""Tables of numbers as spreadsheets and loggers write them: any separator, decimal commas, byte-order marks."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.data.errors import data_error

__all__ = ["Table", "read_table"]

_MISSING = frozenset(["", "nan", "na", "n/a", "null", "none", "-", "--"])


@dataclass(frozen=True)
class Table:
    """A header and rows of text cells."""

    file: Path
    names: list[str]
    rows: list[list[str]]
    lines: list[int]
    """line of each row in the file, from 1"""
    has_decimal_commas: bool

    def line(self, row: int) -> int:
        return self.lines[row]

    def numbers(self, column: int, *, allow_missing: bool) -> Float64[np.ndarray, " K"]:
        """A column as numbers, NaN where a cell is empty or says so.

        Raises: DataError.
        """
        result = np.empty(len(self.rows), dtype=np.float64)
        for k, row in enumerate(self.rows):
            cell = row[column].strip() if column < len(row) else ""
            text = cell.replace(",", ".") if self.has_decimal_commas else cell
            try:
                result[k] = np.nan if text.lower() in _MISSING else float(text)
            except ValueError as error:
                raise data_error(
                    f"Column {self.names[column]} must hold numbers, but row {self.line(k)} of {self.file} "
                    f"says {cell!r}.",
                    "Correct that cell, or leave it empty.",
                ) from error
            if not np.isfinite(result[k]) and not (allow_missing and np.isnan(result[k])):
                raise data_error(
                    f"Column {self.names[column]} must be finite everywhere, but row {self.line(k)} of {self.file} "
                    f"says {cell or 'nothing'!r}.",
                    "Correct or remove that row.",
                )
        return result


def read_table(file: Path, kind: str = "sensor log") -> Table:
    """The table in a text file; `kind` is what messages call it.

    Raises: DataError.
    """
    text = _decoded(file, kind)
    numbered = [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]
    while numbered and numbered[0][1].lstrip().startswith("#") and len(numbered) > 1 and not _is_header(numbered):
        numbered.pop(0)
    if not numbered:
        raise data_error(
            f"A {kind} must have a first line with column names, but {file} is empty.", "Log again, or remove it."
        )
    header = numbered[0][1].lstrip().lstrip("#").strip()
    separator = max(";\t,", key=lambda mark: (header.count(mark), mark != ","))
    names = [name.strip() for name in next(csv.reader([header], delimiter=separator))]
    rows = [row for row in csv.reader([line for _, line in numbered[1:]], delimiter=separator)]
    if _is_number(names[0]) and all(_is_number(name) for name in names):
        raise data_error(
            f"The first line of a {kind} must name its columns, but {file} begins with numbers ({header[:40]}).",
            "Add a first line such as time_s,pressure_kPa.",
        )
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise data_error(
            f"Column names must differ, but {file} has {', '.join(duplicates)} more than once.", "Rename the columns."
        )
    commas = any(re.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*", cell) for row in rows[:200] for cell in row)
    return Table(file, names, rows, [k for k, _ in numbered[1:]], commas)


def _is_header(numbered: list[tuple[int, str]]) -> bool:
    """Whether a line that begins with # names the columns: the next line holds numbers, in as many cells."""
    first, following = numbered[0][1], numbered[1][1]
    cells = re.split(r"[;,\t]", following)
    return len(re.split(r"[;,\t]", first)) == len(cells) and _is_number(cells[0])


def _is_number(text: str) -> bool:
    try:
        float(text.strip().replace(",", "."))
    except ValueError:
        return False
    return True


def _decoded(file: Path, kind: str) -> str:
    raw = file.read_bytes()
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    if "\x00" in text:
        raise data_error(f"A {kind} must be a text file, but {file} is not.", "Export it as CSV.")
    return text
