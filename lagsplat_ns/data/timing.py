"""The order and the times of frames whose presentation times may fall, repeat or leave gaps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64

__all__ = ["order_frames"]


def order_frames(
    times_s: Float64[np.ndarray, " T"], thumbnails: Float32[np.ndarray, "T P"], name: str
) -> tuple[Int64[np.ndarray, " K"], Float64[np.ndarray, " K"], list[str]]:
    """Frame numbers in showing order, their strictly increasing times, and warnings.

    Where times fall, either the frames come out of order or the times were written in the wrong order. The pictures
    tell: the order in which neighboring pictures differ less is taken. thumbnails: a few gray values per frame.
    """
    warnings: list[str] = []
    order = np.arange(len(times_s))
    falls = int(np.sum(np.diff(times_s) < 0))
    if falls:
        by_time = np.argsort(times_s, kind="stable")
        change = [float(np.abs(np.diff(thumbnails[o], axis=0)).mean()) for o in (order, by_time)]
        if change[1] <= change[0]:
            order = by_time
            done = "frames were sorted by their times"
        else:
            done = "the file's frame order was kept, in which pictures change more smoothly, and the times were sorted"
        times_s = np.sort(times_s)
        warnings.append(f"The presentation times of {name} fall {falls} times: {done}.")
    else:
        times_s = times_s.copy()
    steps = np.diff(times_s)
    repeats = np.concatenate([[False], steps <= 0])
    if repeats.any():
        warnings.append(
            f"{int(repeats.sum())} frames of {name} repeat the time of the frame before: they are left out."
        )
        order, times_s = order[~repeats], times_s[~repeats]
        steps = np.diff(times_s)
    if len(steps) and steps.max() > 10 * np.median(steps):
        k = int(np.argmax(steps))
        warnings.append(
            f"{name} has a gap of {steps[k]:.2f} s after {times_s[k] - times_s[0]:.2f} s "
            f"(frames usually follow after {np.median(steps):.3f} s)."
        )
    return order, times_s, warnings
