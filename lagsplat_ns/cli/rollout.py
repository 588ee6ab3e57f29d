"""`lagsplat rollout`: a video of any span of time, with or without a push."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from lagsplat_ns.cli.spans import frame_times

if TYPE_CHECKING:
    from lagsplat_ns.simulator import Grip, Simulator


@dataclass
class Push:
    """A constant force on what one pixel shows when the push begins."""

    pixel: tuple[float, float] | None = None
    """where to push: x and y in pixels of the filming camera's picture, origin top left"""
    force: tuple[float, float] = (0.0, 0.0)
    """x to the right and y down, in picture units (the picture's larger side is 2 long, the thing has unit mass), or in
    newtons after `lagsplat calibrate`"""
    start: float = 0.0
    """when the push begins, seconds since the clip's first frame (with --from-rest: since the video's start)"""
    end: float = 0.1
    """when the push ends, seconds"""

    def check(self, start_s: float, end_s: float) -> None:
        """Raises: ValueError for a push that could not happen in the span."""
        if self.pixel is None:
            if self.force != (0.0, 0.0):
                raise ValueError("A push must have a pixel, but only a force was given.\n  Add --push.pixel X Y.")
            return
        if end_s < start_s:
            raise ValueError(
                f"A push needs time that runs forwards, but the span runs from {start_s} s back to {end_s} s.\n"
                "  Swap --start and --end."
            )
        if not start_s <= self.start < self.end:
            raise ValueError(
                f"A push must begin inside the span and end after it began, but lasts from {self.start} s to "
                f"{self.end} s in a span from {start_s} s.\n  Change --push.start and --push.end."
            )


@dataclass
class Rollout:
    """Writes a video of any span of time: inside the clip, before its start, past its end, or backwards."""

    load_config: Path
    """the config.yml of a training"""
    output: Path = Path("renders/rollout.mp4")
    """the video to write"""
    start: float = 0.0
    """first moment, seconds since the clip's first frame; may be negative"""
    end: float | None = None
    """last moment, seconds; before --start the video runs backwards (default: twice the clip's length)"""
    fps: float = 30.0
    """frames per second of the video"""
    speed: float = 1.0
    """seconds of the thing per second of video"""
    from_rest: bool = False
    """begin at rest in the equilibrium instead of at the clip's state at --start"""
    push: Push = field(default_factory=Push)
    """an optional push"""

    def main(self) -> None:
        """Loads the training, renders, writes."""
        from rich.console import Console

        from lagsplat_ns.cli.videos import write_mp4
        from lagsplat_ns.simulator import Simulator

        console = Console()
        sim = Simulator.load(self.load_config)
        end = self.end if self.end is not None else 2.0 * sim.clip_end_s
        times = frame_times(self.start, end, self.fps, self.speed)
        self.push.check(self.start, end)
        outside_s: list[float] = []

        def watched() -> Iterator[UInt8[np.ndarray, "H W 3"]]:
            for picture in rollout_pictures(sim, times, push=self.push, from_rest=self.from_rest):
                if sim.is_outside_seen:
                    outside_s.append(sim.time_s)
                yield picture

        pictures = watched()
        with console.status(f"rendering {len(times)} frames"):
            count = write_mp4(self.output, pictures, self.fps)
        if self.push.pixel is not None:
            console.print(f"The push is in {sim.force_unit}.")
        if outside_s:
            console.print(
                f"Note: from {outside_s[0]:.2f} s on the thing is further out or faster than the clips showed it; "
                "what it does there is extrapolated.",
                soft_wrap=True,
            )
        console.print(f"{count} frames from {times[0]:.3g} s to {times[-1]:.3g} s: {self.output}", soft_wrap=True)


class RunningPush:
    """A push under way: takes its grip when it begins and keeps it until it ends."""

    def __init__(self, push: Push) -> None:
        self.push = push
        self._grip: Grip | None = None

    def advance(self, sim: Simulator, time_s: float) -> None:
        """Runs the physics on to `time_s`; the push's beginning and end are met exactly, between frames too.

        Raises: ValueError if the push finds only background.
        """
        push = self.push
        if sim.time_s < push.start:
            sim.step(min(time_s, push.start) - sim.time_s)
        if push.start <= sim.time_s < min(push.end, time_s):
            self._grip = self._grip or self._take_grip(sim)
            sim.step(min(time_s, push.end) - sim.time_s, forces=[(self._grip, push.force)])
        if sim.time_s < time_s:
            sim.step(time_s - sim.time_s)

    def _take_grip(self, sim: Simulator) -> Grip:
        if self.push.pixel is None:
            raise ValueError("A push must have a pixel, but has none.\n  Add --push.pixel X Y.")
        grip = sim.grab(self.push.pixel)
        if grip.is_empty:
            raise ValueError(
                f"A push must meet the moving thing, but pixel {self.push.pixel} shows only background at "
                f"{self.push.start} s (moving things cover {grip.coverage:.0%} of it).\n"
                "  Choose another --push.pixel or --push.start."
            )
        return grip


def rollout_pictures(
    sim: Simulator, times_s: list[float], *, push: Push | None = None, from_rest: bool = False
) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """Pictures at given times.

    Without a push the thing is where `Simulator.seek` puts it; from the beginning of a push on (or throughout, from
    rest) the physics runs on from frame to frame.
    """
    from lagsplat_ns.cli.videos import to_uint8

    running = RunningPush(push) if push is not None and push.pixel is not None else None
    if from_rest:
        sim.rest()
        sim.time_s = times_s[0]
    for time_s in times_s:
        if running is not None and time_s > running.push.start:
            if not from_rest and sim.time_s < running.push.start:
                sim.seek(running.push.start)
            running.advance(sim, time_s)
        elif from_rest:
            sim.step(time_s - sim.time_s)
        else:
            sim.seek(time_s)
        yield to_uint8(sim.render())
