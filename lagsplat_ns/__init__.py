"""Physical, interactive Gaussian splats learned from a few seconds of video: a nerfstudio plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lagsplat_ns.simulator import Simulator

__all__ = ["Simulator", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # nerfstudio imports this package while its own registries are half built: nothing heavy may be imported here.
    if name == "Simulator":
        from lagsplat_ns.simulator import Simulator

        return Simulator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
