"""Spans of time as people type them: seconds since the clip's first frame, in either direction."""

from __future__ import annotations

import math


def frame_times(start_s: float, end_s: float, frames_per_second: float, speed: float = 1.0) -> list[float]:
    """The times of a video's frames from start to end, both included where the span is a whole number of frames.

    An end before the start gives falling times: a video that runs backwards. `speed` is clip seconds per video second.

    Raises: ValueError for numbers that are not finite, or a frame rate or speed that is not positive.
    """
    for name, value in (("start", start_s), ("end", end_s)):
        if not math.isfinite(value):
            raise ValueError(f"`--{name}` must be a finite number of seconds, but is {value}.\n  Pass for example 7.5.")
    for name, value in (("fps", frames_per_second), ("speed", speed)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(
                f"`--{name}` must be positive, but is {value}.\n  To run backwards give an --end before the --start."
            )
    step = speed / frames_per_second
    count = math.floor(abs(end_s - start_s) / step + 1e-9) + 1
    direction = 1.0 if end_s >= start_s else -1.0
    return [start_s + direction * k * step for k in range(count)]
