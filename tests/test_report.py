"""Figures of the summary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.observed import ObservedPath
from lagsplat_ns.dynamics.shooting import identify
from lagsplat_ns.training.report import longest_run, swing_period


def test_period_of_a_damped_swing() -> None:
    times = np.arange(0, 12, 1 / 30)
    assert swing_period(times, np.exp(-0.05 * times) * np.cos(2 * np.pi * times / 1.7)) == pytest.approx(1.7, abs=5e-4)
    assert swing_period(times, times) is None


def test_the_longest_undisturbed_stretch() -> None:
    used = np.array([1, 1, 0, 1, 1, 1, 0, 1], dtype=bool)
    assert longest_run(used) == slice(3, 6)
    assert longest_run(np.zeros(4, dtype=bool)) == slice(0, 0)


def test_a_short_clip_of_a_slow_thing_is_not_thinned_away() -> None:
    """80 frames of a quarter of a swing: thinning to 60 frames per swing would leave five."""
    times = torch.arange(80, dtype=torch.float64) / 25
    q = torch.cos(2 * torch.pi * times / 60)[:, None]
    found = identify([ObservedPath(times, q)], ConstantMetric(torch.eye(1, dtype=torch.float64)))
    assert bool(torch.isfinite(found.paths[0].q).all())
