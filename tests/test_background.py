"""The static background: what stands still is kept, what only rests or never leaves is not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from lagsplat_ns.data.background import _continued, estimate_background, noise_level
from tests.video_clips import wall

HEIGHT, WIDTH = 80, 120
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]


def plain_wall() -> np.ndarray:
    """A wall that gets a little lighter to the right."""
    return np.repeat((150 + 0.1 * COLUMNS)[..., None], 3, -1).round().astype(np.uint8)


def striped_card(background: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Pictures of a card with red and yellow stripes, 31 x 23 pixels, around columns `centers` of row 40."""
    pictures = []
    for center in centers:
        picture = background.copy()
        inside = (np.abs(COLUMNS - center) < 16) & (np.abs(ROWS - 40) < 12)
        is_red = (COLUMNS - center) // 5 % 2 == 0
        picture[inside & is_red] = (220, 40, 40)
        picture[inside & ~is_red] = (230, 200, 40)
        pictures.append(picture)
    return np.stack(pictures)


def deviation(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Per pixel the largest difference over the channels, gray levels."""
    return np.abs(found.astype(float) - expected).max(-1)


def test_a_thing_that_rests_most_of_the_time_is_not_background() -> None:
    pictures = []
    for k in range(60):
        picture = wall(80, 120)
        away = 35 * np.sin(np.pi * (k % 10) / 3) if k % 10 < 4 else 0.0  # rests in two thirds of the frames
        cv2.circle(picture, (round(80 - away), 40), 9, (230, 30, 40), -1, cv2.LINE_AA)
        pictures.append(picture)
    samples = np.stack(pictures)
    median = np.median(samples, axis=0)
    rows, columns = np.mgrid[:80, :120]
    resting = np.hypot(columns - 80, rows - 40) < 8
    assert np.abs(median - wall(80, 120))[resting].mean() > 50  # the plain median does take it for background
    background = estimate_background(samples, noise=1.0)
    assert np.abs(background.astype(int) - wall(80, 120))[resting].mean() < 2
    assert np.abs(background.astype(int) - wall(80, 120)).mean() < 0.5


@pytest.mark.parametrize("sigma", [1.0, 3.0, 6.0])
def test_noise_level_is_measured(sigma: float) -> None:
    rng = np.random.default_rng(0)
    first, second = (
        np.clip(wall(80, 120) + sigma * rng.standard_normal((8, 80, 120, 3)), 0, 255).round().astype(np.uint8)
        for _ in range(2)
    )
    # gray noise of one channel; the mean over channels and the lower half of pixels are accounted for roughly
    assert 0.4 * sigma < noise_level(first, second) < 1.3 * sigma


# ---- surroundings decide
def test_colors_of_a_thing_that_rests_give_way_to_those_that_continue_the_surroundings() -> None:
    """It rests six tenths of the time; a lamp that it passes has a color of its own and stays."""
    behind = plain_wall()
    behind[30:36, 85:91] = (30, 60, 220)
    phase = np.arange(48) % 10
    samples = striped_card(behind, np.where(phase < 6, 60, 60 + 35 * np.sin(np.pi * (phase - 5) / 5)).round())
    median = np.median(samples, axis=0).astype(np.float32)
    assert deviation(median, behind)[40, 45:76].min() > 50
    assert deviation(_continued(samples, median, 6.0), behind).max() < 1


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_is_always_covered_is_bare_only_before_a_plain_wall(is_plain: bool) -> None:
    """Columns 56 to 64 are never seen bare: what is behind them is known only where all around looks alike."""
    behind = plain_wall() if is_plain else wall(HEIGHT, WIDTH)
    samples = striped_card(behind, 60 + np.round(11 * np.sin(0.7 * np.arange(48))))
    covered = deviation(estimate_background(samples, noise=1.0), behind)[31:50, 56:65]
    if is_plain:
        assert covered.max() < 2
    else:
        assert np.median(covered) > 80
