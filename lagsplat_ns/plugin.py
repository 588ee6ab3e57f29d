"""What nerfstudio's entry points load: our specifications, or, if a part of ours is broken, only a note about it.

An exception in an entry point would end every ns-* command, for every method the user has installed.
"""

from __future__ import annotations

import importlib
from typing import Any

_SPECIFICATIONS = {
    "lagsplat": "lagsplat_ns.configs",
    "lagsplat_video": "lagsplat_ns.data.video_dataparser",
}


def __getattr__(name: str) -> Any:
    # Each is imported when asked for: nerfstudio asks for dataparsers while its own registries are half built.
    if name not in _SPECIFICATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_SPECIFICATIONS[name]), name)
    except Exception as error:
        # nerfstudio shows what is not a specification, leaves it out, and goes on
        return f"{name} of lagsplat_ns, which failed to load ({type(error).__name__}: {error}): reinstall lagsplat-ns"
