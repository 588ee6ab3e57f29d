"""Tables and summary of the benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from rich.table import Table

from lagsplat_ns.bench.targets import COLUMNS, Column, is_met, target_of

__all__ = ["ablation_table", "baseline_table", "class_table", "result_table", "summary"]

Result = dict[str, Any]


def _value(result: Result, column: Column) -> float | None:
    return result.get("figures", {}).get(column.name)


def _is_asked(result: Result, column: Column) -> bool:
    if column.name == "mass_profile_error":
        return result.get("num_joints") == 1
    return not (column.name == "frequency_error" and result.get("rests_anywhere"))


def _cell(result: Result, column: Column) -> str:
    if not _is_asked(result, column):
        return "·"
    value, met = _value(result, column), is_met(column, _value(result, column), result.get("num_joints", 2))
    text = "?" if value is None else column.show(value)
    return text if met is None else f"[{'green' if met else 'red'}]{text}[/]"


def _headed(title: str, first: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in first:
        table.add_column(name, no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.heading, justify="right", no_wrap=True)
    return table


def result_table(results: list[Result]) -> Table:
    """One row per run; green meets the target in the last two rows, red does not, ? was not found, · does not apply."""
    table = _headed("lagsplat against the truth", ("scene", "seed"))
    for result in results:
        if "error" in result:
            cells = ["[red]failed[/]"] + [""] * (len(COLUMNS) - 1)
        else:
            cells = [_cell(result, column) for column in COLUMNS]
        table.add_row(result["scene"], str(result["seed"]), *cells)
    table.add_section()
    for name, joints in (("target, 1 dof", 1), ("target, several", 2)):
        targets = [target_of(column, joints) for column in COLUMNS]
        table.add_row(name, "", *("" if t is None else c.show(t) for c, t in zip(COLUMNS, targets, strict=True)))
    return table


def _medians(results: list[Result]) -> dict[str, float]:
    """Median of every figure over the runs that have it."""
    found = {}
    for column in COLUMNS:
        values = [v for r in results if _is_asked(r, column) and (v := _value(r, column)) is not None]
        if values:
            found[column.name] = min(values) if column.is_passed_or_not else median(values)
    return found


def class_table(results: list[Result]) -> Table:
    """Medians over scenes and seeds, one row per class of scenes."""
    table = _headed("medians per class (energy: whether all pass)", ("class", "runs"))
    for kind in dict.fromkeys(r["kind"] for r in results if "kind" in r):
        chosen = [r for r in results if r.get("kind") == kind]
        medians = _medians(chosen)
        cells = [column.show(medians[column.name]) if column.name in medians else "·" for column in COLUMNS]
        table.add_row(kind, str(len(chosen)), *cells)
    return table


def ablation_table(results: list[Result]) -> Table:
    """Medians over all runs of every way to train."""
    table = _headed("ways to train, medians over scenes and seeds", ("variant", "runs", "failed"))
    for variant in dict.fromkeys(r["variant"] for r in results):
        chosen = [r for r in results if r["variant"] == variant]
        medians = _medians(chosen)
        cells = [column.show(medians[column.name]) if column.name in medians else "·" for column in COLUMNS]
        table.add_row(variant, str(len(chosen)), str(sum("error" in r for r in chosen)), *cells)
    return table


def baseline_table(results: list[Result]) -> Table | None:
    """Forecasts and pushes beside those of predictors without physics, and whether each stays bounded."""
    names = list(dict.fromkeys(name for r in results for name in r.get("baselines", {})))
    if not names:
        return None
    table = Table(title="next 5 s | pushes | long run after a push 100 times too strong", title_justify="left")
    for name in ("scene", "seed", "lagsplat", *names):
        table.add_column(name, no_wrap=True)
    for result in results:
        if "error" in result:
            continue
        cells = [_short(result.get("figures", {}))]
        cells += [_short(result["baselines"].get(name, {}).get("figures", {})) for name in names]
        table.add_row(result["scene"], str(result["seed"]), *cells)
    return table


def _short(figures: dict[str, float]) -> str:
    parts = []
    for name in ("forecast_5s", "push_error"):
        parts.append("?" if name not in figures else COLUMNS[1].show(figures[name]))
    if "energy_check" in figures:
        gone = "gone" if figures.get("motion_gone") == 1.0 else "moves on"
        passed = "ok" if figures["energy_check"] == 1.0 else gone
        parts.append("lost" if figures.get("bounded") == 0.0 else passed)
    return " | ".join(parts)


def summary(results: list[Result]) -> dict[str, Any]:
    """Targets met and missed with their values, and medians per scene and over all."""
    missed: list[dict[str, Any]] = []
    num_met = 0
    for result in results:
        for column in COLUMNS:
            target = target_of(column, result.get("num_joints", 2))
            if target is None or not _is_asked(result, column):
                continue
            value = _value(result, column)
            if is_met(column, value, result.get("num_joints", 2)):
                num_met += 1
            else:
                which = {name: result[name] for name in ("scene", "seed", "variant")}
                missed.append({**which, "figure": column.name, "value": value, "target": target})
    scenes = dict.fromkeys(r["scene"] for r in results)
    return {
        "runs": len(results),
        "failed": [f"{r['scene']} seed {r['seed']} ({r['variant']}): {r['error']}" for r in results if "error" in r],
        "targets_met": num_met,
        "targets_missed": missed,
        "medians": _medians(results),
        "medians_per_scene": {scene: _medians([r for r in results if r["scene"] == scene]) for scene in scenes},
    }
