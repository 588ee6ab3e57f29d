"""Ways to train that the ablation compares: names and what they add to `ns-train lagsplat`."""

from __future__ import annotations

__all__ = ["VARIANTS"]

VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "conditional decoder": ("--pipeline.model.decoder", "conditional"),
    "learned M": ("--pipeline.model.metric", "learned"),
}
"""Command line options by name. Others add theirs: VARIANTS["name"] = ("--pipeline.model.option", "value")."""
