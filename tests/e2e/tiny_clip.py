"""A clip of a textured pendulum that is drawn in a moment and small enough to train on in seconds."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

SIDE, FRAMES, RATE = 64, 45, 30.0
START = (49.3, 39.6)  # the disk's center at the first frame, pixels


def write_tiny_clip(path: Path) -> Path:
    """Writes one and a half seconds of a swinging disk, 64 x 64 pixels."""
    from lagsplat_ns.cli.videos import write_mp4

    y, x = np.mgrid[0:SIDE, 0:SIDE] + 0.5
    rng = np.random.default_rng(0)
    wall = 150 + 25 * np.sin(0.7 * x) * np.cos(0.5 * y) + 12 * rng.standard_normal((SIDE, SIDE))

    def picture(time_s: float) -> np.ndarray:
        angle = 0.5 * math.exp(-0.1 * time_s) * math.cos(2 * math.pi * time_s / 1.5)
        center_x, center_y = 32 + 36 * math.sin(angle), 8 + 36 * math.cos(angle)
        u, v = x - center_x, y - center_y
        a, b = math.cos(angle) * u - math.sin(angle) * v, math.sin(angle) * u + math.cos(angle) * v
        cover = np.clip(9.5 - np.hypot(u, v), 0, 1)[..., None]
        disk = np.stack([200 + 40 * np.sin(0.9 * a), 60 + 40 * np.cos(0.8 * b), 50 + 30 * np.sin(0.7 * (a + b))], -1)
        return (wall[..., None] * (1 - cover) + disk * cover).clip(0, 255).astype(np.uint8)

    write_mp4(path, (picture(k / RATE) for k in range(FRAMES)), RATE)
    return path
