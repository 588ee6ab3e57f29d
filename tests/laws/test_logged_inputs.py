"""Logged inputs reach the integrator in full, whatever happens between its nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lagsplat_ns.dynamics.inputs import InputMap
from lagsplat_ns.dynamics.integrators import rk4
from lagsplat_ns.dynamics.logged_inputs import CLIP_SPACING_S, LoggedInputs, StageInputs, joined_inputs, step_inputs
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.dynamics.metric import ConstantMetric
from lagsplat_ns.dynamics.observed import ObservedPath, Segment
from lagsplat_ns.dynamics.windows import cut_windows, roll_windows, roll_windows_in_torch


def jumping_log(is_held: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray, LoggedInputs]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0.0, 2.0, 60))
    values = rng.standard_normal((60, 2))
    return times, values, LoggedInputs(torch.from_numpy(times), torch.from_numpy(values), is_held)


@pytest.mark.parametrize("is_held", [False, True])
def test_values_between_rows_and_beyond_them(is_held: bool) -> None:
    times, values, log = jumping_log(is_held)
    asked = np.linspace(-0.5, 2.5, 301)
    got = log(torch.from_numpy(asked)).numpy()
    if is_held:
        rows = np.clip(np.searchsorted(times, asked, side="right") - 1, 0, 59)
        np.testing.assert_array_equal(got, values[rows])
    else:
        want = np.stack([np.interp(asked, times, column) for column in values.T], axis=1)
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("is_held", [False, True])
def test_steps_of_rk4_add_exactly_what_the_log_does(is_held: bool) -> None:
    """q'' = u by thirty steps of rk4, against the integral of a log with jumps between them, taken very finely."""
    _, _, log = jumping_log(is_held)
    h, begins = torch.full((90,), 1 / 30, dtype=torch.float64), torch.arange(90, dtype=torch.float64) / 30 - 0.5
    values = step_inputs(log, begins[None], h[None])[0]
    q, qd = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    drive = StageInputs(values.flatten(0, 1)[None])
    for begin in begins:
        q, qd = rk4(lambda q, qd, t: drive(t)[0], q, qd, begin, h[:1])
    fine = np.arange(-0.5, 2.5, 1e-5) + 0.5e-5
    u = log(torch.from_numpy(fine)).numpy()
    np.testing.assert_allclose(qd.numpy(), u.sum(0) * 1e-5, atol=1e-4)
    np.testing.assert_allclose(q.numpy(), ((2.5 - fine)[:, None] * u).sum(0) * 1e-5, atol=1e-4)


def test_smooth_inputs_are_left_as_they_are() -> None:
    """The correction falls at least with the square of the step, so that rk4 keeps its order."""
    times = torch.arange(0.0, 2.0, 1e-4, dtype=torch.float64)
    log = LoggedInputs(times, torch.sin(3 * times)[:, None])
    sizes = []
    for h in (0.1, 0.05, 0.025):
        begins = torch.arange(0.0, 1.5, h, dtype=torch.float64)
        values = step_inputs(log, begins, torch.full_like(begins, h))
        nodes = torch.stack([log(begins), log(begins + h / 2), log(begins + h)], dim=-2)
        sizes.append(float((values - nodes).abs().max()))
    slopes = [math.log2(a / b) for a, b in zip(sizes[:-1], sizes[1:])]
    assert min(slopes) > 2.8


def test_a_step_of_no_length_has_no_correction() -> None:
    _, _, log = jumping_log(False)
    begins = torch.tensor([0.3, 1.1], dtype=torch.float64)
    values = step_inputs(log, begins, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(values, log(begins)[:, None].expand(2, 3, 2), rtol=0, atol=1e-12)


def test_every_clip_has_its_own_log() -> None:
    first, second = jumping_log(True, 0)[2], jumping_log(True, 1)[2]
    both = joined_inputs([first, lambda t: t.new_zeros(*t.shape, 2), second])
    assert both is not None
    times, h = torch.linspace(0.0, 2.0, 21).double(), torch.full((21,), 1 / 30).double()
    for k, alone in enumerate((first, None, second)):
        got = step_inputs(both, times + k * CLIP_SPACING_S, h)
        want = torch.zeros(21, 3, 2).double() if alone is None else step_inputs(alone, times, h)
        torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    assert joined_inputs([first, None]) is None


def test_windows_roll_alike_compiled_and_in_torch() -> None:
    """One coordinate driven by a held log with jumps between frames, against very fine steps."""
    _, _, log = jumping_log(True)
    mechanism = Mechanism.polynomial(ConstantMetric(torch.eye(1, dtype=torch.float64)), 1, 4, 2).double()
    with torch.no_grad():
        mechanism.potential.stiffness_factor.fill_(3.0)
        assert isinstance(mechanism.inputs, InputMap)
        mechanism.inputs.weights[0].copy_(torch.tensor([[2.0, -1.0]]))
    mechanism.requires_grad_(False)
    times = torch.arange(61, dtype=torch.float64) / 30
    paths = [ObservedPath(times, torch.zeros(61, 1, dtype=torch.float64), log)]
    start = torch.zeros(1, 1, dtype=torch.float64)
    coarse, fine = (cut_windows(paths, [Segment(0, 0, 61)], 61, substeps) for substeps in (2, 64))
    q, _ = roll_windows(mechanism, start, start, coarse)
    again, _ = roll_windows_in_torch(mechanism, start, start, coarse)
    torch.testing.assert_close(q, again, rtol=0, atol=1e-12)
    truth, _ = roll_windows(mechanism, start, start, fine)
    assert float(truth.abs().max()) > 0.2
    assert float((q - truth).abs().max()) < 2e-5
