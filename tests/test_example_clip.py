"""The shipped clip is what its generator draws, and the generator's physics is what it claims."""

from __future__ import annotations

import math
from pathlib import Path

import av
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from lagsplat_ns.examples import example_clip, pendulum, pendulum_clip


@pytest.fixture(scope="module")
def shipped() -> list[tuple[float, np.ndarray]]:
    with av.open(str(example_clip())) as container:
        return [(float(f.pts * f.time_base), f.to_ndarray(format="rgb24")) for f in container.decode(video=0)]


@pytest.fixture(scope="module")
def drawn() -> list[np.ndarray]:
    return list(pendulum_clip.draw_frames())


def _psnr(a: np.ndarray, b: np.ndarray) -> float:
    return -10 * math.log10(max(1e-6, np.mean((a.astype(float) - b) ** 2)) / 255**2)


def test_shipped_clip_is_small_and_has_true_times(shipped: list[tuple[float, np.ndarray]]) -> None:
    assert example_clip().stat().st_size < 300_000
    assert len(shipped) == 150
    assert shipped[0][1].shape == (256, 256, 3)
    np.testing.assert_allclose([t for t, _ in shipped], pendulum.frame_times(), atol=1e-6)


def test_shipped_clip_shows_what_the_generator_draws(
    shipped: list[tuple[float, np.ndarray]], drawn: list[np.ndarray]
) -> None:
    same = [_psnr(picture, frame) for picture, (_, frame) in zip(drawn, shipped, strict=True)]
    next_frame = [_psnr(picture, frame) for picture, (_, frame) in zip(drawn[:20], shipped[1:], strict=False)]
    assert min(same) > 37.0
    assert max(next_frame[3:]) < 34.0  # a clip shifted by one frame would not pass


def test_drawn_disc_is_where_the_truth_says(drawn: list[np.ndarray]) -> None:
    times_s = pendulum.frame_times()[::15]
    background = np.median(np.stack(drawn), axis=0)
    for picture, (x, y) in zip(drawn[::15], pendulum.truth(times_s), strict=True):
        rows, columns = np.nonzero(np.abs(picture - background).max(axis=-1) > 40)
        on_disc = np.hypot(columns + 0.5 - x, rows + 0.5 - y) < pendulum.BOB_RADIUS + 6
        middle = [(v[on_disc].min() + v[on_disc].max() + 1) / 2 for v in (columns, rows)]
        assert abs(middle[0] - x) < 4.0  # the rod and unpainted background make the outline ragged
        assert abs(middle[1] - y) < 6.0


def test_command_writes_the_shipped_clip_again(
    tmp_path: Path,
    shipped: list[tuple[float, np.ndarray]],
    drawn: list[np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pendulum_clip, "draw_frames", lambda: iter(drawn))
    path = tmp_path / "again.mp4"
    pendulum.main([str(path)])
    assert str(path) in capsys.readouterr().out
    with av.open(str(path)) as container:
        again = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    assert min(_psnr(a, b) for a, (_, b) in zip(again, shipped, strict=True)) > 37.0


def test_command_without_a_path_says_how_to_use_it() -> None:
    with pytest.raises(SystemExit, match=r"usage: python -m lagsplat_ns.examples.pendulum OUT.mp4"):
        pendulum.main([])


def test_motion_agrees_with_an_independent_integrator() -> None:
    def rates(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -(pendulum.NATURAL_RATE**2) * math.sin(y[0]) - pendulum.DAMPING_RATE * y[1]]

    times_s = np.linspace(0, 10, 201)
    solution = solve_ivp(rates, (0, 10), [pendulum.RELEASE_ANGLE, 0.0], "DOP853", times_s, rtol=1e-12, atol=1e-13)
    theta, rate = pendulum.angle(times_s)
    np.testing.assert_allclose(theta, solution.y[0], atol=1e-9)
    np.testing.assert_allclose(rate, solution.y[1], atol=1e-8)


def test_power_is_lost_to_damping_alone() -> None:
    times_s = np.linspace(0, 10, 4001)
    energy = pendulum.energy(times_s)
    _, rate = pendulum.angle(times_s)
    lost = pendulum.INERTIA * pendulum.DAMPING_RATE * rate**2
    trapezoid = np.cumsum((lost[1:] + lost[:-1]) / 2 * np.diff(times_s))
    np.testing.assert_allclose(energy[0] - energy[1:], trapezoid, atol=1e-4 * energy[0])
    assert np.all(np.diff(energy) <= 1e-12)


def test_amplitude_period_and_release() -> None:
    times_s = np.linspace(0, 6, 6001)
    theta, rate = pendulum.angle(times_s)
    assert theta[0] == pytest.approx(pendulum.RELEASE_ANGLE)
    assert rate[0] == 0
    turning = np.abs(theta[(times_s > 4.3) & (times_s < 5.0)]).max()
    assert 0.45 < turning / pendulum.RELEASE_ANGLE < 0.60
    rising = times_s[1:][(theta[:-1] < 0) & (theta[1:] >= 0)]
    assert np.all((np.diff(rising) > 1.3) & (np.diff(rising) < 1.6))


@pytest.mark.parametrize("number", range(6))
def test_push_changes_momentum_by_its_impulse(number: int) -> None:
    """d/dt (I theta') = tau - c theta' - m g l_c sin(theta): integrated over the push by quadrature."""
    push = pendulum.pushes()[number]
    times_s = np.linspace(push.start_s, push.end_s - 1e-9, 2001)
    path = push.response(times_s)
    theta = np.arctan2(path[:, 0] - pendulum.PIVOT[0], path[:, 1] - pendulum.PIVOT[1])
    rate_end = np.gradient(theta, times_s, edge_order=2)[-1]
    torque = np.array([push.torque(a, t) for a, t in zip(theta, times_s, strict=True)])
    spring = -(pendulum.NATURAL_RATE**2) * np.sin(theta)
    damping = -pendulum.DAMPING_RATE * (theta[-1] - theta[0])
    both = torque / pendulum.INERTIA + spring
    total = np.sum((both[1:] + both[:-1]) / 2 * np.diff(times_s))
    assert rate_end == pytest.approx(total + damping, rel=2e-3)


@pytest.mark.parametrize("number", range(6))
def test_push_is_on_the_body_and_visible(number: int) -> None:
    push = pendulum.pushes()[number]
    across, along = push.pixel[0] - pendulum.PIVOT[0], push.pixel[1] - pendulum.PIVOT[1]
    on_disc = math.hypot(across, along - pendulum.BOB_DISTANCE) < pendulum.BOB_RADIUS
    assert on_disc or (abs(across) < pendulum.ROD_HALF_WIDTH and 0 < along < pendulum.BOB_DISTANCE)
    before = push.response(np.array([0.0, push.start_s]))
    np.testing.assert_allclose(before, np.tile([pendulum.PIVOT[0], pendulum.PIVOT[1] + pendulum.BOB_DISTANCE], (2, 1)))
    path = push.response(np.linspace(0, 5, 301))
    assert 25 < np.ptp(path[:, 0]) < 2 * pendulum.BOB_DISTANCE * math.sin(pendulum.RELEASE_ANGLE)


def test_times_before_release_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        pendulum.truth(np.array([-0.1]))
