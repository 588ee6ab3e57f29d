"""What the names of a table's columns say: units of inputs, and which column holds the time."""

from __future__ import annotations

__all__ = ["TIME_UNITS", "column_unit", "find_time_column", "time_unit"]

_PRESSURES = ("Pa", "hPa", "kPa", "MPa", "bar", "mbar", "psi")
_FORCES = ("Nm", "mNm", "kNm", "N", "mN", "kN", "lbf")
_ELECTRIC = ("V", "mV", "kV", "A", "mA", "uA", "W", "mW", "kW", "pwm", "duty", "percent")
_UNITS = {unit.lower(): unit for unit in _PRESSURES + _FORCES + _ELECTRIC}
_TIME_NAMES = frozenset(["t", "time", "timestamp", "timestamps", "seconds", "sec", "elapsed", "zeit"])
TIME_UNITS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}


def _split_unit(name: str) -> tuple[str, str]:
    """A column name's stem and the unit behind it: pressure_kPa, pressure [kPa], pressure (kPa)."""
    cleaned = name.replace("[", "_").replace("]", "").replace("(", "_").replace(")", "").replace(" ", "_")
    stem, _, unit = cleaned.strip("_").rpartition("_")
    return stem.rstrip("_"), unit


def column_unit(name: str) -> str:
    """The input unit a column is named with, or an empty text."""
    stem, unit = _split_unit(name)
    if unit == "%":
        return "percent"
    return _UNITS.get(unit.lower(), "") if stem else ""


def find_time_column(names: list[str]) -> int | None:
    """The first column that is named like a time."""
    for k, name in enumerate(names):
        stem, unit = _split_unit(name.lower())
        if name.lower() in _TIME_NAMES or (stem in _TIME_NAMES and unit in TIME_UNITS):
            return k
    return None


def time_unit(name: str) -> float:
    """Seconds per unit of the time column."""
    stem, unit = _split_unit(name.lower())
    return TIME_UNITS.get(unit, 1.0) if stem else 1.0
