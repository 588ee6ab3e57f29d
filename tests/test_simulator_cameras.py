"""Cameras of the simulator: round trips, derivatives, and pictures from them."""

from __future__ import annotations

import math

import pytest
import torch

from lagsplat_ns.simulation.camera import PinholeCamera
from lagsplat_ns.simulator import Simulator
from tests.fake_scenes import HEIGHT, WIDTH, FakeScene, filming_camera


def tilted_camera() -> PinholeCamera:
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    rotation = rotation * torch.linalg.det(rotation)
    matrix = torch.cat([rotation, torch.randn(3, 1, dtype=torch.float64)], 1)
    return PinholeCamera.from_angle(matrix, 0.9, 61, 47)


def test_project_and_unproject_are_inverse() -> None:
    camera = tilted_camera()
    pixels, depths = 40 * torch.rand(9, 2).double(), 1 + torch.rand(9).double()
    points = camera.unproject(pixels, depths)
    torch.testing.assert_close(camera.project(points), pixels, rtol=0, atol=1e-10)


def test_projection_jacobian_is_the_derivative() -> None:
    camera = tilted_camera()
    points = camera.unproject(40 * torch.rand(5, 2).double(), 1 + torch.rand(5).double())
    expected = torch.stack([torch.autograd.functional.jacobian(camera.project, point) for point in points])
    torch.testing.assert_close(camera.projection_jacobian(points), expected, rtol=1e-10, atol=1e-10)


def test_the_picture_plane_fills_the_filming_camera() -> None:
    """The plane y = 0 spans two units along the larger side: corners of the picture are (+-1, +-H/W)."""
    camera = filming_camera()
    corner = camera.project(torch.tensor([[-1.0, 0.0, HEIGHT / WIDTH], [1.0, 0.0, -HEIGHT / WIDTH]]).double())
    torch.testing.assert_close(corner, torch.tensor([[0.0, 0.0], [WIDTH, HEIGHT]]).double(), rtol=0, atol=1e-9)


def test_a_camera_made_from_the_filming_camera_sees_the_same_picture() -> None:
    sim = Simulator(FakeScene(), filming_camera())
    film = sim.filming_camera
    same = sim.camera(film.world_from_camera[:3], camera_angle_x=film.camera_angle_x, width=WIDTH, height=HEIGHT)
    assert torch.equal(sim.render(same), sim.render())


def test_pictures_have_the_camera_size_and_colors_between_zero_and_one() -> None:
    sim = Simulator(FakeScene(), filming_camera())
    picture = sim.render(sim.filming_camera.resized(33, 25))
    assert picture.shape == (25, 33, 3)
    assert 0.0 <= float(picture.min()) < float(picture.max()) <= 1.0


def test_moving_the_camera_moves_the_picture() -> None:
    """A camera moved right by one pixel of the background sheet's depth sees the sheet one pixel to the left."""
    sim = Simulator(FakeScene(), filming_camera())
    film = sim.filming_camera
    moved = film.world_from_camera.clone()
    moved[0, 3] += (2.4 + 0.5) / film.fx
    other = sim.camera(moved, camera_angle_x=film.camera_angle_x, width=WIDTH, height=HEIGHT)
    a, b = sim.render(), sim.render(other)
    edge = (a[:, 1:12] - b[:, 0:11]).abs().max()
    assert float(edge) < 0.02
    assert float((a[:, 0:11] - b[:, 0:11]).abs().max()) > float(edge) * 3


@pytest.mark.parametrize("size", [(128, 96), (640, 480)])
def test_a_force_means_the_same_whatever_the_resolution(size: tuple[int, int]) -> None:
    sim = Simulator(FakeScene(), filming_camera())
    sim.rest()
    x, y = sim.filming_camera.project(sim.means()[20].double()).tolist()
    fine = sim.filming_camera.resized(*size)
    coarse_grip = sim.grab((x, y))
    fine_grip = sim.grab((x * size[0] / WIDTH, y * size[1] / HEIGHT), camera=fine)
    coarse, finer = sim.grip_jacobian(coarse_grip), sim.grip_jacobian(fine_grip)
    torch.testing.assert_close(coarse, finer, rtol=0.05, atol=0.02)


def test_vertical_field_of_view_is_nerfstudios() -> None:
    camera = filming_camera()
    assert camera.vertical_fov_degrees == pytest.approx(2 * math.degrees(math.atan(HEIGHT / 2 / (1.2 * WIDTH))))
