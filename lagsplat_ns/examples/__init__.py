"""The example clip that ships with the package, and the program that drew it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["example_clip"]


def example_clip() -> Path:
    """Path of the shipped clip: a damped pendulum, 150 frames of 256 x 256 at 30 per second.

    Its known physics and true path are in `lagsplat_ns.examples.pendulum`.
    """
    return Path(str(files("lagsplat_ns.examples") / "pendulum.mp4"))
