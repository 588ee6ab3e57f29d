"""Frames and their true times, read from a video file or a folder of pictures."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8

from lagsplat_ns.data.errors import DataError, data_error
from lagsplat_ns.data.sources import ClipSource

__all__ = ["FrameReader", "fit_size"]

_DEFAULT_RATE = 30.0


@dataclass
class FrameReader:
    """Reads one clip once, front to back. `warnings` fills up while it is read."""

    source: ClipSource
    rotation: int | None = None
    """counterclockwise degrees; None: the file's own tag"""
    frame_rate: float | None = None
    warnings: list[str] = field(default_factory=list)
    num_frames_hint: int | None = None
    """how many frames the file claims to have, for a progress bar"""

    def __iter__(self) -> Iterator[tuple[float, UInt8[np.ndarray, "H W 3"]]]:
        """Pairs (time in seconds on the file's own clock, RGB picture) in decoding order.

        Raises: DataError.
        """
        return self._pictures() if self.source.pictures else self._video()

    # ---- video files
    def _video(self) -> Iterator[tuple[float, UInt8[np.ndarray, "H W 3"]]]:
        import av

        path = self.source.path
        if path.stat().st_size == 0:
            raise data_error(f"A clip must hold frames, but {path} has zero bytes.", "Copy or record the file again.")
        number, untimed, size = -1, 0, None
        try:
            with av.open(str(path)) as container:
                if not container.streams.video:
                    raise data_error(
                        f"A clip must hold a video stream, but {path} has none.", "Give a file that shows pictures."
                    )
                stream = container.streams.video[0]
                stream.thread_type = "AUTO"
                self.num_frames_hint = stream.frames or None
                rate = float(stream.average_rate or _DEFAULT_RATE)
                aspect = float(stream.sample_aspect_ratio or 1) or 1.0
                for number, frame in enumerate(container.decode(stream)):
                    if frame.pts is None or frame.time_base is None:
                        untimed += 1
                        time_s = number / rate
                    else:
                        time_s = float(frame.pts * frame.time_base)
                    picture = self._upright(_rgb(frame), frame)
                    size = size or picture.shape[:2]
                    _check_same_size(picture.shape[:2], size, f"frame {number}", path)
                    yield time_s, _square_pixels(picture, aspect)
        except (av.FFmpegError, OSError) as error:
            if isinstance(error, DataError):
                raise
            if number < 0:
                raise data_error(
                    f"A clip must be a video that FFmpeg can read, but {path} is not ({_short(error)}).",
                    "Check that the file plays; if it does, convert it to H.264 in an .mp4 file.",
                ) from error
            self.warnings.append(
                f"{path.name} is damaged after frame {number} ({_short(error)}): the rest is left out."
            )
        if number < 0:
            raise data_error(
                f"A clip must hold frames, but no frame of {path} could be decoded.",
                "Check that the file plays; if it does, convert it to H.264 in an .mp4 file.",
            )
        if untimed:
            self.warnings.append(
                f"{untimed} of {number + 1} frames of {path.name} have no presentation time: "
                f"taken at the file's nominal {rate:g} frames per second."
            )

    def _upright(self, picture: UInt8[np.ndarray, "H W 3"], frame: object) -> UInt8[np.ndarray, "H2 W2 3"]:
        tag = self.rotation
        if tag is None:
            tag = round(float(getattr(frame, "rotation", 0) or 0))
            if tag % 90:
                message = (
                    f"{self.source.path.name} asks to be turned by {tag} degrees, which is not a quarter turn: ignored."
                )
                if message not in self.warnings:
                    self.warnings.append(message)
                return picture
        return np.ascontiguousarray(np.rot90(picture, tag // 90 % 4)) if tag % 360 else picture

    # ---- folders of pictures
    def _pictures(self) -> Iterator[tuple[float, UInt8[np.ndarray, "H W 3"]]]:
        pictures, size = self.source.pictures, None
        self.num_frames_hint = len(pictures)
        for time_s, file in zip(self._picture_times(), pictures, strict=True):
            picture = cv2.imdecode(np.fromfile(file, dtype=np.uint8), cv2.IMREAD_COLOR) if file.stat().st_size else None
            if picture is None:
                raise data_error(
                    f"Every picture of a clip must be readable, but {file} is not.",
                    "Remove it, or save it again as .png or .jpg.",
                )
            picture = np.ascontiguousarray(np.rot90(picture[..., ::-1], (self.rotation or 0) // 90))
            size = size or picture.shape[:2]
            _check_same_size(picture.shape[:2], size, file.name, self.source.path)
            yield time_s, picture

    def _picture_times(self) -> list[float]:
        pictures = self.source.pictures
        if self.source.times_file is not None:
            return _read_times(self.source.times_file, pictures)
        if self.frame_rate is None:
            # names that are themselves decimal numbers (12.033.png) are times in seconds
            if all(re.fullmatch(r"\d+\.\d+", file.stem) for file in pictures):
                return [float(file.stem) for file in pictures]
            self.warnings.append(
                f"{self.source.path.name} holds pictures without times: taken at {_DEFAULT_RATE:g} per second. "
                "Give --frame-rate, or a times.csv with a column time_s."
            )
        rate = self.frame_rate or _DEFAULT_RATE
        return [k / rate for k in range(len(pictures))]


def fit_size(height: int, width: int, max_side: int) -> tuple[int, int]:
    """Height and width scaled down, never up, so that the larger side is at most `max_side` pixels."""
    scale = min(1.0, max_side / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _rgb(frame: object) -> UInt8[np.ndarray, "H W 3"]:
    """The decoded picture as RGB; what is transparent is laid over white."""
    if any(component.is_alpha for component in frame.format.components):  # type: ignore[attr-defined]
        rgba = frame.to_ndarray(format="rgba").astype(np.float32)  # type: ignore[attr-defined]
        alpha = rgba[..., 3:] / 255
        return np.round(rgba[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return frame.to_ndarray(format="rgb24")  # type: ignore[attr-defined]


def _square_pixels(picture: UInt8[np.ndarray, "H W 3"], aspect: float) -> UInt8[np.ndarray, "H W2 3"]:
    if abs(aspect - 1) < 0.01:
        return picture
    height, width = picture.shape[:2]
    return cv2.resize(picture, (max(1, round(width * aspect)), height), interpolation=cv2.INTER_AREA)


def _check_same_size(size: tuple[int, ...], first: tuple[int, ...], name: str, path: Path) -> None:
    if size != first:
        raise data_error(
            f"All frames must have one size, but {name} of {path} has {size[1]} x {size[0]} pixels "
            f"and the first has {first[1]} x {first[0]}.",
            "Use only the part with one size (`start`, `end`), or bring all frames to the same size.",
        )


def _read_times(file: Path, pictures: tuple[Path, ...]) -> list[float]:
    """Times in seconds of a folder's pictures: one row per picture in natural order, column time_s, time or t."""
    with file.open(newline="", encoding="utf-8-sig") as stream:
        rows = [row for row in csv.reader(stream) if any(cell.strip() for cell in row)]
    names = [cell.strip().lower() for cell in rows[0]] if rows else []
    column = next((names.index(name) for name in ("time_s", "time", "t", "seconds") if name in names), None)
    if column is None:
        raise data_error(
            f"{file} must have a column time_s, but its first line is {','.join(names) or 'empty'!r}.",
            "Write a first line with time_s, then one time in seconds per picture.",
        )
    if len(rows) - 1 != len(pictures):
        raise data_error(
            f"{file} must have one row per picture, but it has {len(rows) - 1} rows for {len(pictures)} pictures.",
            "Add the missing rows or remove the surplus pictures.",
        )
    times = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            times.append(float(row[column]))
        except (ValueError, IndexError) as error:
            raise data_error(
                f"Times must be numbers, but row {number} of {file} says {','.join(row)!r}.", "Correct that row."
            ) from error
        if not np.isfinite(times[-1]):
            raise data_error(
                f"Times must be finite, but row {number} of {file} says {row[column]}.", "Correct that row."
            )
    return times


def _short(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
