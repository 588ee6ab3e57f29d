"""nerfstudio's view of video from one fixed camera: one pinhole pose for all frames, a time for each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from nerfstudio.cameras.cameras import Cameras, CameraType
from nerfstudio.data.dataparsers.base_dataparser import DataParser, DataParserConfig, DataparserOutputs
from nerfstudio.data.scene_box import SceneBox
from nerfstudio.plugins.registry_dataparser import DataParserSpecification

from lagsplat_ns.data.prepare import PreparedClip, prepare_clips
from lagsplat_ns.data.settings import VideoSettings, default_max_side

# nerfstudio reads this module while its own registries are half built: nothing of nerfstudio.configs or
# nerfstudio.data.datamanagers may be imported here.

__all__ = ["VideoDataParser", "VideoDataParserConfig", "lagsplat_video"]

_FOCAL_PER_SIDE = 1.2


@dataclass
class VideoDataParserConfig(DataParserConfig, VideoSettings):
    """Video from one fixed camera: a file, a folder with one or several files, or a folder of pictures."""

    _target: type = field(default_factory=lambda: VideoDataParser)
    """target class to instantiate"""
    data: Path = Path()
    """A video file, a folder with one or several video files, or a folder of pictures."""
    max_side: int | None = field(default_factory=default_max_side)
    """Larger side of the pictures in pixels; larger clips are scaled down to it."""


class VideoDataParser(DataParser):
    """Prepares the clips once and hands nerfstudio their pictures, times and one pose.

    Times run from 0 to 1 over the first clip's frames in use; another clip's times are in the same unit of
    `seconds_per_unit` seconds, each from its own first frame.
    """

    config: VideoDataParserConfig
    includes_time: bool = True

    def __init__(self, config: VideoDataParserConfig) -> None:
        super().__init__(config=config)
        self.includes_time = True
        self._clips: list[PreparedClip] | None = None

    @property
    def clips(self) -> list[PreparedClip]:
        """The prepared clips, in order."""
        if self._clips is None:
            self._clips = prepare_clips(self.config.data, self.config)
        return self._clips

    def _generate_dataparser_outputs(self, split: str = "train", **kwargs: Any) -> DataparserOutputs:
        chosen = [(c, k) for c, clip in enumerate(self.clips) for k in _frames_of(clip, split)]
        height, width = self.clips[0].frames.shape[1:3]
        focal = _focal_length(width, height, self.config.field_of_view)
        seconds_per_unit = float(self.clips[0].times_s[-1])
        times_s = torch.tensor([self.clips[c].times_s[k] for c, k in chosen], dtype=torch.float64)
        cameras = Cameras(
            camera_to_worlds=_world_from_camera(2 * focal / max(width, height)).repeat(len(chosen), 1, 1),
            fx=focal,
            fy=focal,
            cx=width / 2,
            cy=height / 2,
            width=width,
            height=height,
            camera_type=CameraType.PERSPECTIVE,
            times=(times_s / seconds_per_unit).float()[:, None],
        )
        metadata = {
            "prepared": [str(clip.folder) for clip in self.clips],
            "seconds_per_unit": seconds_per_unit,
            "num_train": [clip.num_train for clip in self.clips],
            "clip_index": [c for c, _ in chosen],
            "frame_index": [k for _, k in chosen],
            "times_s": times_s.tolist(),
        }
        return DataparserOutputs(
            image_filenames=[self.clips[c].image_paths[k] for c, k in chosen],
            cameras=cameras,
            scene_box=SceneBox(aabb=torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])),
            metadata=metadata,
        )


def _frames_of(clip: PreparedClip, split: str) -> range:
    """Frame numbers of a split: training comes first, the held-out tail is both val and test."""
    total = len(clip.times_s)
    if split == "train":
        return range(clip.num_train)
    return range(clip.num_train, total) if clip.num_train < total else range(total)


def _focal_length(width: int, height: int, field_of_view: float | None) -> float:
    """Focal length in pixels; field_of_view: horizontal, degrees."""
    if field_of_view is None:
        return _FOCAL_PER_SIDE * max(width, height)
    return width / 2 / math.tan(math.radians(field_of_view) / 2)


def _world_from_camera(distance: float) -> torch.Tensor:
    """The fixed pose [3, 4]: at (0, -distance, 0), looking along +y, x right, z up (OpenGL axes)."""
    return torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, -distance], [0.0, 1.0, 0.0, 0.0]])


lagsplat_video = DataParserSpecification(
    config=VideoDataParserConfig(),
    description="Video from one fixed camera: a file, a folder of files, or a folder of pictures; no poses needed.",
)
