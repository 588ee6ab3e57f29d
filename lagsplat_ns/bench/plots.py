"""Plots of one run: forecast, pushes and energy against the truth, and the clip beside its renderings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lagsplat_ns.bench.following import advance
from lagsplat_ns.bench.truth import Truth
from lagsplat_ns.simulator import Simulator

__all__ = ["contact_sheet", "plot_energy", "plot_forecast", "plot_pushes"]

COLORS = {"lagsplat": "#d1495b", "linear oscillator": "#3a7ca5", "neural ODE": "#e0a030", "copy last frame": "#777777"}
TRUE_COLOR = "#8d99ae"

Series = dict[str, dict[str, np.ndarray]]


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_forecast(truth: Truth, series: Series, result: dict, path: Path) -> None:
    """Both picture coordinates of the point that moves most, after the clip, by everyone."""
    plt = _pyplot()
    own = series["lagsplat"]
    if "forecast_true" not in own:
        return
    true, times = own["forecast_true"], own["forecast_times_s"]
    point = int(np.ptp(true, axis=0).max(-1).argmax())
    figure, panels = plt.subplots(1, 2, figsize=(12, 3.6), constrained_layout=True)
    for axis, panel in enumerate(panels):
        panel.plot(times, true[:, point, axis], color=TRUE_COLOR, lw=3.5, label="truth")
        for name, each in series.items():
            if "forecast_simulated" in each:
                panel.plot(times, each["forecast_simulated"][:, point, axis], color=COLORS[name], lw=1.1, label=name)
        low, high = true[:, point, axis].min(), true[:, point, axis].max()
        margin = 0.4 * (high - low) + 2
        panel.set_ylim(low - margin, high + margin)
        panel.set_xlabel("seconds")
        panel.set_ylabel(f"{'xy'[axis]} of {truth.point_names[point]}, pixels")
    panels[0].legend(frameon=False, fontsize=8, ncols=2)
    error = result["figures"].get("forecast_5s")
    figure.suptitle(
        f"{truth.scene}, seed {truth.seed}: next 5 s" + ("" if error is None else f", {error:.2%} of range")
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def plot_pushes(truth: Truth, series: Series, result: dict, path: Path) -> None:
    """The pushed point's picture coordinate that moves most, for every push, by everyone."""
    plt = _pyplot()
    own = series["lagsplat"]
    if "push_true" not in own:
        return
    figure, panels = plt.subplots(2, 3, figsize=(14, 6), constrained_layout=True)
    errors = result.get("details", {}).get("push_errors", [])
    for k, (panel, push) in enumerate(zip(panels.ravel(), truth.pushes, strict=True)):
        true = own["push_true"][k][:, push.index]
        axis = int(np.ptp(true, axis=0).argmax())
        panel.plot(own["push_times_s"], true[:, axis], color=TRUE_COLOR, lw=3.5, label="truth")
        for name, each in series.items():
            if "push_simulated" in each:
                panel.plot(
                    each["push_times_s"], each["push_simulated"][k][:, push.index, axis], color=COLORS[name], lw=1.1
                )
        margin = 0.4 * np.ptp(true[:, axis]) + 2
        panel.set_ylim(true[:, axis].min() - margin, true[:, axis].max() + margin)
        note = " (sets the gain)" if k == 0 else ""
        panel.set_title(f"{push.point}: {errors[k]:.2%}{note}" if k < len(errors) else push.point, fontsize=9)
        panel.set_xlabel("seconds")
        panel.set_ylabel(f"{'xy'[axis]}, pixels")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def plot_energy(series: Series, path: Path) -> None:
    """Energy along clip and forecast, and how far things are after a push a hundred times too strong."""
    plt = _pyplot()
    own = series["lagsplat"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.6), constrained_layout=True)
    if "energy_times_s" in own:
        left.plot(own["energy_times_s"], own["energy_true"], color=TRUE_COLOR, lw=3.5, label="truth")
        left.plot(own["energy_times_s"], own["energy_simulated"], color=COLORS["lagsplat"], lw=1.1, label="lagsplat")
        left.legend(frameon=False)
    left.set_title("energy, 1 at the first frame")
    left.set_xlabel("seconds")
    for name, each in series.items():
        sizes = each.get("long_run_size", np.zeros(0))
        if len(sizes):
            right.plot(each["long_run_times_s"], np.maximum(sizes, 1e-8), color=COLORS[name], lw=0.9, label=name)
            right.set_yscale("log")
    right.set_title("after a push 100 times too strong: distance in ranges")
    right.set_xlabel("seconds")
    if right.lines:
        right.legend(frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def contact_sheet(sim: Simulator, truth: Truth, clip: Path, path: Path) -> None:
    """Frames of the clip, what the simulator shows at these times, and its forecast as long after, with true points."""
    import av
    from PIL import Image, ImageDraw

    with av.open(str(clip)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    rows: list[list[np.ndarray]] = [[], [], []]
    for k in np.linspace(0, len(frames) - 1, 5).astype(int):
        time_s = k / truth.frames_per_second
        rows[0].append(frames[k])
        for row, moment in ((1, time_s), (2, time_s + truth.clip_seconds)):
            sim.seek(min(moment, sim.clip_end_s))
            advance(sim, truth, moment)
            picture = Image.fromarray((sim.render().cpu().numpy() * 255 + 0.5).astype(np.uint8))
            draw = ImageDraw.Draw(picture)
            for x, y in truth.paths(np.array([moment]))[0]:
                draw.ellipse((x - 2, y - 2, x + 2, y + 2), outline="white", fill="black")
            rows[row].append(np.asarray(picture))
    Image.fromarray(np.concatenate([np.concatenate(row, 1) for row in rows], 0)).save(path)
