"""`lagsplat demo`: the whole way on the clip that ships with the package, and how far from the truth it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

if TYPE_CHECKING:
    from rich.console import Console

    from lagsplat_ns.simulator import Simulator


@dataclass
class Demo:
    """Trains on the shipped example clip, then shows reconstruction, forecast and answers to pushes."""

    output_dir: Path = Path("lagsplat-demo")
    """folder for the training, the videos and the plots"""
    max_num_iterations: int | None = None
    """training steps, for a quick look; default: those of `ns-train lagsplat`"""

    def main(self) -> None:
        """Trains, then writes everything and prints where it is."""
        from rich.console import Console

        from lagsplat_ns.cli.training import train
        from lagsplat_ns.examples import example_clip
        from lagsplat_ns.simulator import Simulator

        console = Console()
        console.print("[bold]1/3 training[/] on the example clip: 5 s of a pendulum, 256 x 256")
        started = time.perf_counter()
        config = train(example_clip(), self.output_dir / "training", max_num_iterations=self.max_num_iterations)
        seconds = time.perf_counter() - started
        sim = Simulator.load(config)
        console.print("[bold]2/3 videos and plots[/]")
        paths = write_videos(sim, self.output_dir)
        console.print("[bold]3/3 against the truth[/], which the clip's program knows")
        figures = write_truth(sim, self.output_dir)
        figures["training_seconds"] = round(seconds, 1)
        (self.output_dir / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        report(console, figures, [*paths, self.output_dir / "truth.png", self.output_dir / "figures.json"], config)


def write_videos(sim: Simulator, folder: Path) -> list[Path]:
    """Writes the side-by-side video, the push video, a still picture and the plot of the motion."""
    from PIL import Image

    from lagsplat_ns.cli.drawing import plot_motion
    from lagsplat_ns.cli.videos import write_mp4
    from lagsplat_ns.examples.pendulum import FRAME_RATE

    side, push, still, motion = (
        folder / name for name in ("side_by_side.mp4", "push.mp4", "picture.png", "motion.png")
    )
    panels = list(side_by_side(sim))
    write_mp4(side, panels, FRAME_RATE)
    pushed = list(push_pictures(sim))
    write_mp4(push, pushed, FRAME_RATE)
    Image.fromarray(contact_sheet(panels, pushed)).save(still)
    plot_motion(sim, motion, seconds_after=sim.clip_end_s)
    return [side, push, still, motion]


def side_by_side(sim: Simulator) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """The clip, its reconstruction, and the same span of time after the clip's end."""
    from lagsplat_ns.cli.drawing import beside, labeled
    from lagsplat_ns.cli.videos import read_frames, to_uint8
    from lagsplat_ns.examples import example_clip

    frames, times = read_frames(example_clip())
    clip_s = sim.clip_end_s + times[1] - times[0]
    for frame, time_s in zip(frames, times, strict=True):
        panels = [labeled(frame, f"clip, {time_s:.2f} s")]
        for name, moment in (("reconstruction", time_s), ("forecast", time_s + clip_s)):
            sim.seek(moment)
            panels.append(labeled(to_uint8(sim.render()), f"{name}, {moment:.2f} s"))
        yield beside(panels)


def push_pictures(sim: Simulator) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """The thing at rest, pushed to the right and later to the left, the force drawn as an arrow."""
    from lagsplat_ns.cli.drawing import labeled, with_arrow
    from lagsplat_ns.cli.videos import to_uint8
    from lagsplat_ns.examples.pendulum import FRAME_RATE, pushes

    sim.rest()
    push = pushes()[0]
    grip = sim.grab(push.pixel)
    plan = [(0.5, 0.8, push.force), (2.6, 2.9, (-1.5 * push.force[0], push.force[1]))]
    for k in range(round(5.0 * FRAME_RATE)):
        now = k / FRAME_RATE
        forces = [(grip, force) for start, end, force in plan if start <= now < end]
        picture = to_uint8(sim.render())
        for _, force in forces:
            picture = with_arrow(picture, sim.grip_pixel(grip), (6.0 * force[0], 6.0 * force[1]))
        yield labeled(picture, f"{'pushed' if forces else 'free'}, {now:.2f} s")
        sim.step(1.0 / FRAME_RATE, forces=forces)


def contact_sheet(
    panels: list[UInt8[np.ndarray, "H W 3"]], pushed: list[UInt8[np.ndarray, "H2 W2 3"]]
) -> UInt8[np.ndarray, "H3 W3 3"]:
    """One row of the side-by-side video and the moment of the push, as a still picture."""
    from lagsplat_ns.cli.drawing import beside

    return beside([panels[int(0.3 * len(panels))], pushed[int(0.155 * len(pushed))]])


def write_truth(sim: Simulator, folder: Path) -> dict[str, float | list[float]]:
    """Compares forecast and push answers with the program that drew the clip; writes the plot, returns the figures."""
    from lagsplat_ns.cli.drawing import plot_truth
    from lagsplat_ns.evaluation import evaluate_forecast, evaluate_pushes
    from lagsplat_ns.examples.pendulum import body_path, pushes, truth

    x, y = body_path(np.zeros(1))[0]
    forecast = evaluate_forecast(sim, truth, seconds=5.0)
    answers = evaluate_pushes(sim, pushes(), (float(x), float(y)), seconds=5.0)
    plot_truth(forecast, answers, folder / "truth.png")
    return {
        "forecast_error_of_range": forecast.error,
        "frozen_frame_error_of_range": forecast.frozen_error,
        "push_gain": answers.gain,
        "push_errors_of_range": answers.errors,
        "median_unseen_push_error_of_range": answers.median_unseen_error,
    }


def report(console: Console, figures: dict, paths: list[Path], config: Path) -> None:
    """Prints figures, files, and how to go on."""
    from rich.table import Table

    table = Table(title="the example clip, against the truth", show_header=False)
    table.add_row("training", f"{figures['training_seconds']:.0f} s")
    table.add_row(
        "forecast of the next 5 s",
        f"{figures['forecast_error_of_range']:.2%} of the motion's range "
        f"(a frozen last frame: {figures['frozen_frame_error_of_range']:.0%})",
    )
    table.add_row(
        "five pushes the clip never showed", f"{figures['median_unseen_push_error_of_range']:.1%} of range, median"
    )
    console.print(table)
    for path in paths:
        console.print(f"  {path}", soft_wrap=True, highlight=False)
    console.print(f"Open it in the viewer:\n  ns-viewer --load-config {config}", soft_wrap=True, highlight=False)
