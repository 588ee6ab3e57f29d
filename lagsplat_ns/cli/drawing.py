"""Pictures for people: labels and arrows on frames, frames side by side, and plots of the motion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from lagsplat_ns.evaluation import Forecast, PushAnswers
    from lagsplat_ns.simulator import Simulator

INK, ACCENT, TRUTH = "#1f2d3d", "#d1495b", "#8d99ae"


def labeled(picture: UInt8[np.ndarray, "H W 3"], text: str) -> UInt8[np.ndarray, "H2 W 3"]:
    """The picture under a dark bar with white text."""
    from PIL import Image, ImageDraw, ImageFont

    height = 24
    bar = Image.new("RGB", (picture.shape[1], height), INK)
    ImageDraw.Draw(bar).text((8, 4), text, fill="white", font=ImageFont.load_default(size=13))
    return np.concatenate([np.asarray(bar), picture])


def with_arrow(
    picture: UInt8[np.ndarray, "H W 3"], start: tuple[float, float], vector: tuple[float, float]
) -> UInt8[np.ndarray, "H W 3"]:
    """The picture with an arrow from a pixel along a vector in pixels."""
    import cv2

    tip = (round(start[0] + vector[0]), round(start[1] + vector[1]))
    drawn = picture.copy()
    for color, thickness in (((255, 255, 255), 6), ((209, 73, 91), 3)):
        drawn = cv2.arrowedLine(drawn, (round(start[0]), round(start[1])), tip, color, thickness, cv2.LINE_AA, 0, 0.3)
    return drawn


def beside(pictures: Sequence[UInt8[np.ndarray, "H W 3"]], gap: int = 4) -> UInt8[np.ndarray, "H W2 3"]:
    """Pictures of one height from left to right, with white between them."""
    space = np.full((pictures[0].shape[0], gap, 3), 255, dtype=np.uint8)
    row: list[np.ndarray] = []
    for picture in pictures:
        row += [picture, space]
    return np.concatenate(row[:-1], axis=1)


def plot_motion(sim: Simulator, path: Path, *, seconds_after: float) -> None:
    """Writes a plot of q(t) inside the clip and after it, the energy, and the phase portrait."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    end = sim.clip_end_s
    times = np.linspace(0.0, end + seconds_after, 600)
    q, qd, energy = [], [], []
    for time in times:
        sim.seek(float(time))
        q.append(sim.state.q.numpy())
        qd.append(sim.state.qd.numpy())
        energy.append(sim.energy())
    q, qd = np.array(q), np.array(qd)

    figure, (top, middle, right) = plt.subplots(1, 3, figsize=(13, 3.6), constrained_layout=True)
    for k in range(q.shape[1]):
        top.plot(times, q[:, k], label=f"q{k}" if q.shape[1] > 1 else "q")
        right.plot(q[:, k], qd[:, k], lw=0.9)
    middle.plot(times, energy, color=ACCENT)
    for axes in (top, middle):
        axes.axvspan(0.0, end, color=TRUTH, alpha=0.18, lw=0)
        axes.set_xlabel("seconds (shaded: the clip)")
    top.set_title("coordinates q(t)")
    middle.set_title("energy, 1 at the first frame, 0 at rest")
    middle.set_ylim(bottom=0.0)
    right.set_title("phase portrait")
    right.set_xlabel("q")
    right.set_ylabel("dq/dt, 1/s")
    if q.shape[1] > 1:
        top.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_truth(forecast: Forecast, answers: PushAnswers, path: Path) -> None:
    """Writes a plot of forecast and push answers (horizontal pixel of the watched point) over the true paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(15, 6), constrained_layout=True)
    panels = list(axes.ravel())
    cases = [(forecast.times_s, forecast.true, forecast.simulated, f"after the clip: {forecast.error:.2%} of range")]
    for k, (true, simulated, error) in enumerate(zip(answers.true, answers.simulated, answers.errors, strict=True)):
        title = f"push {k}: {error:.1%} of range" + (" (sets the gain)" if k == 0 else "")
        cases.append((answers.times_s, true, simulated, title))
    for panel, (times, true, simulated, title) in zip(panels, cases, strict=False):
        panel.plot(times, true[:, 0], color=TRUTH, lw=3.0, label="truth")
        panel.plot(times, simulated[:, 0], color=ACCENT, lw=1.0, label="lagsplat")
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("seconds")
    panels[0].set_ylabel("x, pixels")
    panels[0].legend(frameon=False)
    for panel in panels[len(cases) :]:
        panel.axis("off")
    figure.savefig(path, dpi=100)
    plt.close(figure)
