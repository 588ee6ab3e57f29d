"""Writing pictures as mp4 video."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor


def to_uint8(picture: Float[Tensor, "H W 3"]) -> UInt8[np.ndarray, "H W 3"]:
    """Colors in [0, 1] as bytes."""
    return (picture.detach().cpu().numpy() * 255.0 + 0.5).clip(0, 255).astype(np.uint8)


def even_size(picture: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "H2 W2 3"]:
    """The picture with its last row and column repeated where its size is odd, which video encoders refuse."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def write_mp4(path: Path, pictures: Iterable[UInt8[np.ndarray, "H W 3"]], frames_per_second: float) -> int:
    """Writes pictures as H.264 video and returns their number; the file appears only when it is complete.

    Raises: ValueError without pictures, for a frame rate that is not positive, or another file ending than .mp4.
    """
    import av

    if path.suffix.lower() != ".mp4":
        raise ValueError(
            f"The video's file name must end in .mp4, but is {path.name!r}.\n  Pass for example {path.stem}.mp4."
        )
    if not 0.0 < frames_per_second < float("inf"):
        raise ValueError(
            f"Frames per second must be a positive number, but are {frames_per_second}.\n  Pass for example 30."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
    count = 0
    try:
        with av.open(str(unfinished), mode="w", options={"movflags": "faststart"}) as container:
            stream = container.add_stream("libx264", rate=Fraction(frames_per_second).limit_denominator(1001))
            stream.pix_fmt, stream.options = "yuv420p", {"crf": "16", "preset": "medium"}
            for picture in pictures:
                even = even_size(picture)
                if count == 0:
                    stream.height, stream.width = even.shape[:2]
                container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
                count += 1
            if count:
                container.mux(stream.encode())
        if count == 0:
            raise ValueError("A video must have at least one picture, but got none.\n  Ask for a longer span of time.")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def read_frames(path: Path) -> tuple[list[UInt8[np.ndarray, "H W 3"]], list[float]]:
    """All frames of a video and their presentation times in seconds since the first."""
    import av

    frames, times = [], []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            frames.append(frame.to_ndarray(format="rgb24"))
            times.append(float(frame.time or 0.0))
    return frames, [time - times[0] for time in times]
