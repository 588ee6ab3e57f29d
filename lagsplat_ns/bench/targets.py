"""The figures of the benchmark: how they are called in tables, and what they should reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["COLUMNS", "Column", "is_met", "target_of"]

ONE_DOF, SEVERAL = 0, 1


def _percent(value: float) -> str:
    return f"{100 * value:.2g}%" if value < 0.995 else f"{100 * value:.0f}%"


@dataclass(frozen=True)
class Column:
    """One figure: its name in results, its heading, how it is printed, and its largest allowed value.

    targets: for one degree of freedom and for several; None where nothing is asked. A figure that counts as passed or
    not is 1 or 0 and must be 1.
    """

    name: str
    heading: str
    show: Callable[[float], str] = _percent
    targets: tuple[float | None, float | None] = (None, None)
    is_passed_or_not: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("latent_dim", "d", lambda v: f"{v:.0f}"),
    Column("forecast_2s", "next 2 s"),
    Column("forecast_5s", "next 5 s", targets=(0.003, 0.01)),
    Column("push_error", "pushes", targets=(0.04, 0.12)),
    Column("push_error_worst", "worst", targets=(0.25, 0.25)),
    Column("direction_degrees", "direct.", lambda v: f"{v:.2g}°"),
    Column("response_ratio_error", "ratio"),
    Column("flow_error", "flow"),
    Column("mass_profile_error", "mass"),
    Column("frequency_error", "freq.", targets=(0.005, 0.005)),
    Column("decay_error", "decay"),
    Column("background_leakage", "leak", targets=(0.007, 0.007)),
    Column("superposition_error", "superp.", lambda v: f"{v:.0e}", targets=(1e-6, 1e-6)),
    Column("energy_check", "energy", lambda v: "ok" if v == 1.0 else "FAIL", (1.0, 1.0), is_passed_or_not=True),
    Column("training_seconds", "train s", lambda v: f"{v:.0f}", targets=(60.0, 60.0)),
)


def target_of(column: Column, num_joints: int) -> float | None:
    """What a figure must reach on a scene with so many degrees of freedom."""
    return column.targets[ONE_DOF if num_joints == 1 else SEVERAL]


def is_met(column: Column, value: float | None, num_joints: int) -> bool | None:
    """Whether a figure meets its target; a missing figure does not; None where nothing is asked."""
    target = target_of(column, num_joints)
    if target is None:
        return None
    if value is None:
        return False
    return value == target if column.is_passed_or_not else value <= target
