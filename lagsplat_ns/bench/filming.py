"""Pictures of a scene: frames of a clip, which pixels show things that move, and the video file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, UInt8

from lagsplat_ns.bench.mjcf import CAMERA_DISTANCE, Look, wall_texture
from lagsplat_ns.bench.opengl import new_renderer
from lagsplat_ns.bench.physics import Physics

__all__ = ["film", "moving_pixels", "write_video"]

SUPERSAMPLING = 2


@contextmanager
def _renderer(physics: Physics, look: Look, size: tuple[int, int], factor: int) -> Iterator[Any]:
    width, height = size
    model = physics.model
    model.cam_fovy[model.camera("film").id] = math.degrees(2 * math.atan(height / max(size) / CAMERA_DISTANCE))
    wall = model.texture("wall").id
    start = int(model.tex_adr[wall])
    texels = wall_texture(look)
    model.tex_data[start : start + texels.size] = texels.ravel()
    renderer = new_renderer(model, width * factor, height * factor)
    try:
        yield renderer
    finally:
        renderer.close()


def film(
    physics: Physics, look: Look, states: Float64[np.ndarray, "T n"], size: tuple[int, int]
) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """Pictures (width, height) of the given joint states, drawn at twice the size and averaged."""
    with _renderer(physics, look, size, SUPERSAMPLING) as renderer:
        for qpos in states:
            _show(renderer, physics, qpos)
            large = renderer.render().astype(np.float32)
            width, height = size
            small = large.reshape(height, SUPERSAMPLING, width, SUPERSAMPLING, 3).mean((1, 3))
            yield (small + 0.5).astype(np.uint8)


def moving_pixels(
    physics: Physics, look: Look, qpos: Float64[np.ndarray, " n"], size: tuple[int, int]
) -> Bool[np.ndarray, "H W"]:
    """Which pixels show something that moves, at one joint state."""
    mujoco = physics.mujoco
    with _renderer(physics, look, size, 1) as renderer:
        renderer.enable_segmentation_rendering()
        _show(renderer, physics, qpos)
        segments = np.asarray(renderer.render())
    objects, kinds = segments[..., 0], segments[..., 1]
    is_geom = kinds == int(mujoco.mjtObj.mjOBJ_GEOM)
    moving = physics.moving_geoms()
    return np.where(is_geom, moving[np.clip(objects, 0, len(moving) - 1)], kinds >= 0)


def _show(renderer: Any, physics: Physics, qpos: Float64[np.ndarray, " n"]) -> None:
    physics.data.qpos[:], physics.data.qvel[:] = qpos, 0.0
    physics.mujoco.mj_forward(physics.model, physics.data)
    renderer.update_scene(physics.data, camera="film")


def write_video(path: Path, pictures: Sequence[UInt8[np.ndarray, "H W 3"]], frames_per_second: int) -> None:
    """Writes H.264 with exact times k / frames_per_second and little loss (crf 12, 4:2:0)."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), mode="w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=frames_per_second)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "12", "preset": "medium"}
        stream.time_base = Fraction(1, frames_per_second)
        for k, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = k, Fraction(1, frames_per_second)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
