"""Pictures of prepared clips for nerfstudio's trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
from nerfstudio.configs.dataparser_configs import AnnotatedDataParserUnion
from nerfstudio.data.datamanagers.full_images_datamanager import FullImageDatamanager, FullImageDatamanagerConfig
from nerfstudio.data.datasets.base_dataset import InputDataset

from lagsplat_ns.data.prepare import PreparedClip, load_prepared
from lagsplat_ns.data.video_dataparser import VideoDataParserConfig

__all__ = ["VideoDataManager", "VideoDataManagerConfig"]


@dataclass
class VideoDataManagerConfig(FullImageDatamanagerConfig):
    """nerfstudio's manager of full images with video as its default input and images kept as bytes."""

    _target: type = field(default_factory=lambda: VideoDataManager)
    """target class to instantiate"""
    dataparser: AnnotatedDataParserUnion = field(default_factory=VideoDataParserConfig)
    """Where the frames come from."""
    cache_images: Literal["cpu", "gpu"] = "gpu"
    """Whether to keep images on the CPU or on the device that trains."""
    cache_images_type: Literal["uint8", "float32"] = "uint8"
    """How images are kept: uint8 takes a quarter of the memory."""


class VideoDataManager(FullImageDatamanager[InputDataset]):
    """Serves frames with their camera and time, and the prepared clips as a whole."""

    config: VideoDataManagerConfig

    def __init__(
        self,
        config: VideoDataManagerConfig,
        device: torch.device | str = "cpu",
        test_mode: Literal["test", "val", "inference"] = "val",
        world_size: int = 1,
        local_rank: int = 0,
        **kwargs: object,
    ) -> None:
        super().__init__(config, device, test_mode, world_size, local_rank, **kwargs)
        # The parent moves more than 500 images to pinned memory, which needs a CUDA driver.
        config.cache_images = "gpu"

    @cached_property
    def dataset_type(self) -> type[InputDataset]:
        return InputDataset

    @cached_property
    def clips(self) -> list[PreparedClip]:
        """The prepared clips behind the frames, in order."""
        return [load_prepared(Path(folder)) for folder in self.metadata["prepared"]]

    @property
    def metadata(self) -> dict:
        """What the data parser says about the training frames."""
        return cast(dict, self.train_dataparser_outputs.metadata)

    def _load_images(
        self, split: Literal["train", "eval"], cache_images_device: Literal["cpu", "gpu"]
    ) -> list[dict[str, Any]]:
        """Images of a split as tensors on the device, straight from the prepared arrays where they are at hand."""
        outputs = self.train_dataparser_outputs if split == "train" else self.eval_dataset._dataparser_outputs
        dataset = self.train_dataset if split == "train" else self.eval_dataset
        self.train_cameras = self.train_dataset.cameras.to(self.device)
        if "frame_index" not in outputs.metadata or self.config.camera_res_scale_factor != 1.0:
            return super()._load_images(split, "gpu")
        images = []
        for number, (clip, frame) in enumerate(
            zip(outputs.metadata["clip_index"], outputs.metadata["frame_index"], strict=True)
        ):
            image = torch.from_numpy(self.clips[clip].frames[frame].copy()).to(self.device)
            if self.config.cache_images_type == "float32":
                image = image.float() / 255
            images.append({"image_idx": number, "image": image})
        assert len(images) == len(dataset)
        return images
