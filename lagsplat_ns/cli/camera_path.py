"""`lagsplat camera-path`: a camera path with which plain `ns-render camera-path` leaves the clip's own time."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagsplat_ns.cli.spans import frame_times

if TYPE_CHECKING:
    from lagsplat_ns.simulation.camera import PinholeCamera


@dataclass
class CameraPath:
    """Writes a camera path (JSON) for `ns-render camera-path`: past the end, before the start, or backwards."""

    load_config: Path
    """the config.yml of a training"""
    output: Path = Path("renders/camera_path.json")
    """the camera path to write"""
    start: float = 0.0
    """first moment, seconds since the clip's first frame; may be negative"""
    end: float | None = None
    """last moment, seconds; before --start the video runs backwards (default: twice the clip's length)"""
    fps: float = 30.0
    """frames per second of the video"""
    speed: float = 1.0
    """seconds of the thing per second of video"""

    def main(self) -> None:
        """Loads the training and writes the path."""
        from rich.console import Console

        from lagsplat_ns.simulator import Simulator

        sim = Simulator.load(self.load_config)
        end = self.end if self.end is not None else 2.0 * sim.clip_end_s
        times = frame_times(self.start, end, self.fps, self.speed)
        path = camera_path(sim.filming_camera, [t / sim.clip_end_s for t in times], self.fps)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.output.with_name(f".{self.output.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(path, indent=1), encoding="utf-8")
        unfinished.replace(self.output)
        Console().print(
            f"{len(times)} frames from {times[0]:.3g} s to {times[-1]:.3g} s: {self.output}\n"
            f"  ns-render camera-path --load-config {self.load_config} --camera-path-filename {self.output} "
            f"--output-path {self.output.with_suffix('.mp4')}",
            soft_wrap=True,
            highlight=False,
        )


def camera_path(camera: PinholeCamera, render_times: list[float], frames_per_second: float) -> dict[str, Any]:
    """nerfstudio's camera path of a camera that stays where it is.

    render_times: 0 is the clip's first frame and 1 its last; any number may appear. The format knows only square pixels
    and a principal point in the middle.
    """
    frame = {
        "camera_to_world": [float(v) for v in camera.world_from_camera.reshape(-1)],
        "fov": camera.vertical_fov_degrees,
        "aspect": camera.width / camera.height,
    }
    return {
        "camera_type": "perspective",
        "render_height": camera.height,
        "render_width": camera.width,
        "fps": frames_per_second,
        "seconds": len(render_times) / frames_per_second,
        "is_cycle": False,
        "smoothness_value": 0.0,
        "keyframes": [],
        "camera_path": [{**frame, "render_time": float(time)} for time in render_times],
    }
