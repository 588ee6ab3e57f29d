"""`lagsplat bench`: measurements of the package's own speed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Bench:
    """Measures how fast the package is on this machine."""

    renderer: bool = False
    """the CPU rasterizer beside a vectorized torch path, in one run"""

    def main(self) -> None:
        """Runs what was asked for."""
        if not self.renderer:
            raise ValueError("`lagsplat bench` must measure something, but nothing was chosen.\n  Add --renderer.")
        from lagsplat_ns.cli.bench_renderer import main as bench_renderer

        bench_renderer()
