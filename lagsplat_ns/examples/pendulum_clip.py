"""How the example clip is drawn: a painted disc on a steel rod before a tiled wall, anti-aliased by supersampling."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from lagsplat_ns.examples.pendulum import (
    BOB_DISTANCE,
    BOB_RADIUS,
    FRAME_RATE,
    PIVOT,
    ROD_HALF_WIDTH,
    SIZE,
    angle,
    frame_times,
)

__all__ = ["draw_frames", "write_clip"]

_SUPER = 4  # samples per pixel side
_FINE = SIZE * _SUPER


def _grid() -> tuple[Float32[np.ndarray, "F F"], Float32[np.ndarray, "F F"]]:
    """Pixel coordinates (x, y) of every sample."""
    axis = (np.arange(_FINE, dtype=np.float32) + 0.5) / _SUPER
    x, y = np.meshgrid(axis, axis)
    return x, y


def _smooth_noise(seed: int, sigma: float) -> Float32[np.ndarray, "F F"]:
    """Gray clouds with standard deviation 1; `sigma` is their size in pixels."""
    noise = np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32)
    clouds = cv2.resize(cv2.GaussianBlur(noise, (0, 0), sigma), (_FINE, _FINE), interpolation=cv2.INTER_CUBIC)
    return clouds / clouds.std()


def _shrink(picture: Float32[np.ndarray, "F F C"]) -> Float32[np.ndarray, "H W C"]:
    return cv2.resize(picture, (SIZE, SIZE), interpolation=cv2.INTER_AREA)


def _wall() -> Float32[np.ndarray, "F F 3"]:
    """Pale tiles with worn joints, a dark shelf below, light from the upper left."""
    x, y = _grid()
    tile_w, tile_h = 38.0, 27.0
    row = np.floor(y / tile_h)
    shifted = x + 0.5 * tile_w * (row % 2)
    column = np.floor(shifted / tile_w)
    to_joint = np.minimum(
        np.minimum(shifted % tile_w, tile_w - shifted % tile_w), np.minimum(y % tile_h, tile_h - y % tile_h)
    )
    shade = np.random.default_rng(7).uniform(-1, 1, (16, 16)).astype(np.float32)
    tint = shade[row.astype(int) % 16, column.astype(int) % 16]
    base = np.array([0.80, 0.76, 0.68], dtype=np.float32)
    picture = base + tint[..., None] * np.array([0.025, 0.03, 0.04], dtype=np.float32)
    picture = picture + 0.018 * _smooth_noise(1, 1.3)[..., None] + 0.02 * _smooth_noise(2, 9.0)[..., None]
    joint = np.clip(1.6 - to_joint, 0, 1)[..., None]
    picture = picture * (1 - joint) + joint * np.array([0.62, 0.57, 0.50], dtype=np.float32)
    light = 1.08 - 0.30 * ((x - 80) ** 2 + (y - 60) ** 2) / (256.0**2)
    picture = picture * light[..., None]

    board = np.clip((y - 228.0) * 2, 0, 1)[..., None]
    grain = 0.5 + 0.5 * np.sin(0.9 * y + 2.2 * _smooth_noise(3, 14.0) + 0.02 * x)
    wood = np.array([0.36, 0.23, 0.15], dtype=np.float32) * (0.85 + 0.3 * grain)[..., None]
    wood = wood * np.where(y < 231.0, 1.35, 1.0)[..., None]
    return np.clip(picture * (1 - board) + wood * board, 0, 1).astype(np.float32)


def _bracket() -> Float32[np.ndarray, "F F 4"]:
    """The fixed support over the rod's upper end, premultiplied by its coverage."""
    x, y = _grid()
    plate = np.maximum(np.abs(x - PIVOT[0]) - 26, np.abs(y - (PIVOT[1] - 10)) - 5) < 0
    hub = np.hypot(x - PIVOT[0], y - PIVOT[1]) < 8
    cover = (plate | hub).astype(np.float32)
    color = np.broadcast_to(np.array([0.30, 0.32, 0.35], dtype=np.float32), (*x.shape, 3)).copy()
    color *= (1.15 - 0.02 * (y - PIVOT[1] + 15))[..., None]
    color[np.hypot(x - PIVOT[0], y - PIVOT[1]) < 3] = (0.78, 0.66, 0.38)
    for side in (-19.0, 19.0):
        color[np.hypot(x - PIVOT[0] - side, y - (PIVOT[1] - 10)) < 2.0] = (0.62, 0.63, 0.65)
    return np.concatenate([color * cover[..., None], cover[..., None]], axis=-1)


def _body() -> Float32[np.ndarray, "F F 4"]:
    """Rod and painted disc hanging straight down, premultiplied by their coverage."""
    x, y = _grid()
    right, down = x - PIVOT[0], y - PIVOT[1]
    rod = (np.abs(right) < ROD_HALF_WIDTH) & (down > 0) & (down < BOB_DISTANCE)
    radius = np.hypot(right, down - BOB_DISTANCE)
    turn = np.arctan2(right, down - BOB_DISTANCE)
    disc = radius < BOB_RADIUS
    cover = (rod | disc).astype(np.float32)

    # steel rod with brass rings, so that its length can be read from the picture
    color = np.empty((*x.shape, 3), dtype=np.float32)
    color[:] = (0.20, 0.22, 0.26)
    color += (0.28 * np.exp(-(((right + 0.8) / 0.9) ** 2)))[..., None]
    rings = np.abs((down - 22.0) % 24.0 - 12.0) < 2.5
    color[rings & rod] = (0.80, 0.62, 0.25)

    # disc: red and cream fields between a dark rim and a brass center; fields of unequal width show the turning
    paint = np.empty_like(color)
    paint[:] = (0.74, 0.16, 0.13)
    cream = np.sin(3.0 * turn + 0.7 + 0.6 * np.sin(turn)) > 0
    paint[cream] = (0.93, 0.86, 0.70)
    blue = (np.abs(radius - 13.0) < 2.0) & ~cream
    paint[blue] = (0.96, 0.73, 0.25)
    paint += 0.02 * _smooth_noise(5, 1.2)[..., None]
    paint[radius > BOB_RADIUS - 2.5] = (0.16, 0.14, 0.17)
    paint[radius < 5.0] = (0.85, 0.68, 0.30)
    paint[radius < 2.0] = (0.25, 0.20, 0.15)
    color[disc] = paint[disc]
    color = np.clip(color, 0, 1)
    return np.concatenate([color * cover[..., None], cover[..., None]], axis=-1)


def draw_frames() -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """The clip's pictures in order, before compression."""
    wall, bracket, body = _shrink(_wall()), _shrink(_bracket()), _body()
    center = (PIVOT[0] * _SUPER - 0.5, PIVOT[1] * _SUPER - 0.5)
    for theta in angle(frame_times())[0]:
        # OpenCV turns counterclockwise for positive degrees: that is toward the right for what hangs below the pivot.
        turned = cv2.warpAffine(
            body, cv2.getRotationMatrix2D(center, float(np.degrees(theta)), 1.0), (_FINE, _FINE), flags=cv2.INTER_LINEAR
        )
        layer = _shrink(turned)
        picture = wall * (1 - layer[..., 3:]) + layer[..., :3]
        picture = picture * (1 - bracket[..., 3:]) + bracket[..., :3]
        yield np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def write_clip(path: Path, crf: int = 9) -> None:
    """Writes the clip as H.264 in an mp4 file whose presentation times are the frames' true times."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FRAME_RATE)
        stream.width = stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(crf), "preset": "veryslow", "tune": "animation"}
        stream.codec_context.thread_count = 1
        stream.time_base = Fraction(1, FRAME_RATE)
        for k, picture in enumerate(draw_frames()):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = k, Fraction(1, FRAME_RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
