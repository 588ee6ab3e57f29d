"""nerfstudio's trainer configuration, which leaves nothing behind for data that cannot be trained on."""

from __future__ import annotations

from dataclasses import dataclass

from nerfstudio.engine.trainer import TrainerConfig

from lagsplat_ns.data.prepare import prepare_clips
from lagsplat_ns.data.video_dataparser import VideoDataParserConfig


@dataclass
class LagSplatTrainerConfig(TrainerConfig):
    """A `TrainerConfig` that prepares the clips before it writes itself to the output folder."""

    def save_config(self) -> None:
        """Write config.yml, once the data is known to be usable; the trainer then finds it prepared.

        Raises: DataError, MissingDataError.
        """
        manager = self.pipeline.datamanager
        parser = getattr(manager, "dataparser", None)
        if isinstance(parser, VideoDataParserConfig):
            prepare_clips(manager.data or parser.data, parser)
        super().save_config()
