"""Small clips of tests: a disc that swings before a textured wall, written to disk; clips that exist only in memory."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from lagsplat_ns.data.prepare import PreparedClip


def wall(height: int = 64, width: int = 96, seed: int = 0) -> np.ndarray:
    """A static textured picture."""
    noise = np.random.default_rng(seed).uniform(60, 190, (height // 8 + 1, width // 8 + 1, 3)).astype(np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def disc_center(time_s: float, height: int = 64, width: int = 96) -> tuple[float, float]:
    """Pixel coordinates of the disc's middle."""
    return width / 2 + width * 0.3 * np.cos(2 * np.pi * time_s / 0.8), height / 2


def swinging_disc(times_s: np.ndarray, height: int = 64, width: int = 96) -> list[np.ndarray]:
    """Pictures of a bright disc that swings left and right."""
    pictures = []
    for time_s in times_s:
        picture = wall(height, width)
        x, y = disc_center(time_s, height, width)
        cv2.circle(picture, (round((x - 0.5) * 16), round((y - 0.5) * 16)), 8 * 16, (250, 240, 20), -1, cv2.LINE_AA, 4)
        pictures.append(picture)
    return pictures


def write_video(
    path: Path, pictures: list[np.ndarray], times_s: np.ndarray, codec: str = "libx264", options: dict | None = None
) -> Path:
    """A video file whose presentation times are `times_s` rounded to milliseconds."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv444p" if codec == "libx264" else "bgr0"
        stream.options = options or ({"crf": "10", "bf": "0"} if codec == "libx264" else {})
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.time_base = Fraction(1, 1000)
        for picture, time_s in zip(pictures, times_s, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = round(float(time_s) * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_pictures(folder: Path, pictures: list[np.ndarray], name: str = "frame{}.png") -> Path:
    """A folder of PNG files, numbered without leading zeros."""
    folder.mkdir(parents=True)
    for k, picture in enumerate(pictures):
        cv2.imwrite(str(folder / name.format(k)), picture[..., ::-1])
    return folder


def turn_by_tag(path: Path, degrees: int) -> None:
    """Sets the rotation in an mp4 file's track header: the picture is to be shown turned clockwise by `degrees`."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4
    matrix = at + (40 if data[at] == 0 else 52)
    one, minus = (1 << 16).to_bytes(4, "big"), (0xFFFF0000).to_bytes(4, "big")
    none, last = bytes(4), (1 << 30).to_bytes(4, "big")
    a, b, c, d = {90: (none, one, minus, none), 180: (minus, none, none, minus), 270: (none, minus, one, none)}[degrees]
    data[matrix : matrix + 36] = a + b + none + c + d + none + none + none + last
    path.write_bytes(bytes(data))


def clip_in_memory(frames: np.ndarray, masks: np.ndarray, flow: np.ndarray, background: np.ndarray) -> PreparedClip:
    """A prepared clip at 30 frames per second, all of it for training, of which no file exists."""
    return PreparedClip(
        frames=frames,
        times_s=np.arange(len(frames)) / 30,
        background=background,
        masks=masks,
        flow=flow.astype(np.float16),
        image_paths=[],
        sensors=None,
        num_train=len(frames),
        source=Path("memory.mp4"),
        folder=Path("memory"),
    )
