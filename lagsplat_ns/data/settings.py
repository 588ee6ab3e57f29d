"""Which part of a clip is used, how large, and where the prepared data is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from lagsplat_ns.data.errors import data_error

__all__ = ["VideoSettings", "default_max_side"]

MIN_FRAMES = 8


def default_max_side() -> int:
    """Largest picture side, pixels, that trains in a short time on this machine: 256 on a CPU, 512 with CUDA."""
    import torch

    return 512 if torch.cuda.is_available() else 256


@dataclass
class VideoSettings:
    """Options of video input."""

    start: float | None = None
    """First second of the clip to use, counted from its first frame; None: from the beginning."""
    end: float | None = None
    """Last second of the clip to use, counted from its first frame; None: to the end."""
    frame_stride: int = 1
    """Use every n-th frame."""
    max_side: int | None = None
    """Larger side of the pictures in pixels, larger clips are scaled down to it; None: 256 on a CPU, 512 with CUDA."""
    held_out: float = 0.2
    """Share of the frames, at the clip's end, that is kept from training and used to test the forecast."""
    field_of_view: float | None = None
    """Horizontal field of view of the camera in degrees; None: a focal length of 1.2 times the larger side."""
    rotation: Literal[0, 90, 180, 270] | None = None
    """Turn the pictures counterclockwise by this many degrees; None: as the file's own rotation tag says."""
    frame_rate: float | None = None
    """Frames per second of a folder of pictures that has no times.csv; a video's own times are always used."""
    sensor_columns: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--input-columns",))] = ("auto",)
    """Columns of the sensor log to use as inputs. "auto": those named with the unit of a pressure, torque, force,
    voltage, current, power or duty cycle (such as pressure_kPa). "none": no inputs."""
    measurement_columns: tuple[str, ...] = ()
    """Columns of the sensor log that were measured but do not act (an angle, a position): the learned coordinates are
    checked against them, and they are no inputs."""
    sensor_interpolation: Literal["linear", "hold"] = "linear"
    """Value between two rows of the sensor log: on the line between them, or that of the earlier row."""
    cache_dir: Path | None = None
    """Where prepared data is kept; None: `.lagsplat` beside the data, or your own cache folder if that is read-only."""

    def check(self) -> None:
        """Refuses settings that no clip can satisfy.

        Raises: DataError.
        """
        for name in ("start", "end", "field_of_view", "frame_rate"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise data_error(
                    f"`{name}` must be a finite number, but it is {value}.", f"Give a number for `{name}`."
                )
        if self.start is not None and self.start < 0:
            raise data_error(
                f"`start` must not be negative, but it is {self.start:g} s.",
                "Seconds count from the clip's first frame: give 0 or more, or leave `start` out.",
            )
        begin = self.start or 0.0
        if self.end is not None and self.end <= begin:
            raise data_error(
                f"`end` must come after `start`, but start is {begin:g} s and end is {self.end:g} s.",
                "Both are seconds from the clip's first frame: give an `end` larger than `start`.",
            )
        if self.frame_stride < 1:
            raise data_error(
                f"`frame_stride` must be 1 or more, but it is {self.frame_stride}.",
                "Give 1 to use every frame, 2 to use every second one.",
            )
        if not 0.0 <= self.held_out <= 0.8:
            raise data_error(
                f"`held_out` must lie between 0 and 0.8, but it is {self.held_out:g}.",
                "It is the share of frames kept for testing: give 0.2 for the last 20 %.",
            )
        if self.max_side is not None and self.max_side < 16:
            raise data_error(
                f"`max_side` must be 16 pixels or more, but it is {self.max_side}.", "Give 256, or leave it out."
            )
        if self.field_of_view is not None and not 1.0 <= self.field_of_view <= 170.0:
            raise data_error(
                f"`field_of_view` must lie between 1 and 170 degrees, but it is {self.field_of_view:g}.",
                "Give the horizontal angle that the camera sees, about 60 for a phone, or leave it out.",
            )
        if self.frame_rate is not None and self.frame_rate <= 0:
            raise data_error(
                f"`frame_rate` must be positive, but it is {self.frame_rate:g}.",
                "Give the pictures per second at which the folder was filmed.",
            )
