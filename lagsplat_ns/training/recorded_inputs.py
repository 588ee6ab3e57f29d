"""The measured inputs of all clips as a scene keeps them, so that a checkpoint can go on with them past the clips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.data.sensors import shared_inputs

__all__ = ["recorded_inputs"]


def recorded_inputs(clips: Sequence[PreparedClip]) -> dict[str, Any]:
    """What a `SceneSpec` says about inputs: their number, names, units, and the log of every clip.

    Raises: DataError if two clips were logged with different inputs.
    """
    names, _ = shared_inputs([(clip.source.name, clip.sensors) for clip in clips])
    if not names:
        return {}
    tables, units, is_held = [], (), False
    for clip in clips:
        if clip.sensors is None:
            tables.append(torch.zeros(0, 1 + len(names), dtype=torch.float64))
            continue
        log = clip.sensors.picked(names)
        units, is_held = log.units, log.interpolation == "hold"
        tables.append(torch.from_numpy(np.column_stack([log.times_s, log.values])))
    return {
        "num_inputs": len(names),
        "input_names": names,
        "input_units": units,
        "input_logs": tuple(tables),
        "holds_inputs": is_held,
    }
