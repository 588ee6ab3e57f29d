"""Latent coordinates from tracks whose true coordinates are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lagsplat_ns.gaussians.bases import motion_gram, placement
from lagsplat_ns.training.embedding import Motions, candidates, embed

PIXEL = 2.0 / 256


def motions_of(angles: np.ndarray, translations: np.ndarray, noise: float = 0.05) -> Motions:
    """Motions [T, P] of a card of points around the origin, with noise in pixels."""
    rng = np.random.default_rng(0)
    num_bases = angles.shape[1]
    points = torch.from_numpy(rng.uniform(-0.2, 0.2, (60, 2)))
    skinning = torch.nn.functional.one_hot(torch.arange(60) % num_bases, num_bases).double()
    gram = motion_gram(placement(points, torch.zeros(2, dtype=torch.float64), skinning), torch.ones(60).double())
    translations = translations + noise * PIXEL * rng.standard_normal(translations.shape)
    return Motions(angles + noise * PIXEL * rng.standard_normal(angles.shape), translations, gram.numpy(), np.zeros(2))


def about(pivot: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Translations [T, 1, 2] of a part at the origin that turns about a pivot."""
    c, s = np.cos(angles), np.sin(angles)
    turned = np.stack([c * -pivot[0] - s * -pivot[1], s * -pivot[0] + c * -pivot[1]], -1)
    return (pivot + turned)[:, None]


TIMES = np.linspace(0, 10, 200)


def test_a_pendulum_gets_its_angle() -> None:
    theta = 0.6 * np.cos(2 * TIMES) * np.exp(-0.05 * TIMES)
    pivot = np.array([0.1, 0.8])
    found = embed(motions_of(theta[:, None], about(pivot, theta)), 1, PIXEL)
    assert found.has_pivots
    assert np.abs(found.bases.pivots.detach().numpy() - pivot).max() < 0.1 * PIXEL
    turned = found.q[:, 0] * float(found.bases.angle_coefficients[1, 0].detach())
    gain = np.polyfit(theta, turned, 1)[0]
    assert abs(gain - 1.0) < 1e-3, "the gauge is the angle itself"


def test_a_ball_that_looks_the_same_from_all_sides_turns_with_its_string() -> None:
    theta = 0.6 * np.cos(2 * TIMES)
    found = embed(motions_of(np.zeros((200, 1)), about(np.array([0.0, 0.9]), theta)), 1, PIXEL)
    assert found.has_pivots
    assert abs(np.ptp(found.q) * float(found.bases.angle_coefficients[1, 0].detach()) - np.ptp(theta)) < 2e-3


def test_a_wheel_gets_an_unwrapped_angle() -> None:
    theta = 3.0 * TIMES
    found = embed(motions_of(theta[:, None], about(np.array([0.03, -0.02]), theta)), 1, PIXEL)
    assert found.has_pivots
    assert abs(np.ptp(found.q) * float(found.bases.angle_coefficients[1, 0].detach()) - 30.0) < 0.02


def test_a_mass_on_a_spring_stays_linear() -> None:
    x = 0.3 * np.cos(3 * TIMES)
    shift = np.stack([0.2 * x, x], -1)[:, None]
    found = embed(motions_of(np.zeros((200, 1)), shift), 1, PIXEL)
    assert not found.has_pivots and found.degree == 1
    assert abs(np.corrcoef(found.q[:, 0], x)[0, 1]) > 0.9999


def test_arc_length_has_a_constant_metric() -> None:
    """Along a parabola the tracks' speed per rate of q varies by a few percent; the metric knows the rest."""
    x = 0.4 * np.cos(2 * TIMES)
    found = embed(motions_of(np.zeros((200, 1)), np.stack([x, 1.5 * x**2], -1)[:, None], noise=0.0), 1, PIXEL)
    speed = np.linalg.norm(found.bases.jacobian(torch.from_numpy(found.q)).detach().numpy()[:, 2:, 0], axis=1)
    assert np.ptp(speed) / speed.mean() < 0.1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_number_of_coordinates_is_found(count: int) -> None:
    """Independent slow, middle and fast motions of two parts."""
    wave = np.stack([np.cos(2 * TIMES), np.sin(3.1 * TIMES + 1), np.cos(4.7 * TIMES + 2)][:count], 1)
    mix = np.random.default_rng(1).standard_normal((count, 4)) * 0.1
    shift = (wave @ mix).reshape(200, 2, 2)
    assert candidates(motions_of(np.zeros((200, 2)), shift), PIXEL)[-1].latent_dim == count


def test_frames_with_a_hand_do_not_bend_the_map() -> None:
    theta = 0.6 * np.cos(2 * TIMES)
    shift = about(np.array([0.1, 0.8]), theta)
    shift[:6] += 0.3
    found = embed(motions_of(theta[:, None], shift), 1, PIXEL)
    assert found.has_pivots
    assert np.abs(found.bases.pivots.detach().numpy() - [0.1, 0.8]).max() < 1.0 * PIXEL
