"""Structure found from tracks and pictures of things whose parts and joints are known exactly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training.chains import find_chain
from lagsplat_ns.training.deformation import Deformation
from lagsplat_ns.training.joints import fit_circle, hang_together
from lagsplat_ns.training.rigid_parts import RigidMotion, TrackedPoints, partitions, structure_tensors
from lagsplat_ns.training.starts import StructureStart, find_structure
from lagsplat_ns.training.structure import Modes, bending_chain, modes_of, tree_of_parts
from tests.video_clips import clip_in_memory

TIMES = np.linspace(0.0, 3.0, 60)
FIRST, SECOND = 0.5 * np.cos(5 * TIMES), 0.7 * np.sin(7.3 * TIMES + 0.4)  # absolute angles of two arms
PIVOT, JOINT = 3.0 + 40.0j, -2.0 + 5.0j  # canonical places, pixels, up is +


def seen(points: np.ndarray, tracks: np.ndarray, noise: float = 0.0, share: float = 1.0) -> TrackedPoints:
    """Tracks with some noise, as seen on well textured things (share 1) or plain ones."""
    rng = np.random.default_rng(0)
    shaken = tracks + noise * (rng.standard_normal(tracks.shape) + 1j * rng.standard_normal(tracks.shape))
    return TrackedPoints(points, shaken, np.broadcast_to(share * np.eye(2), (len(points), 2, 2)).copy())


def rod(start: complex, end: complex, count: int = 120) -> np.ndarray:
    """Points on a rod four pixels thick."""
    rng = np.random.default_rng(1)
    along = rng.random(count)
    across = (end - start) / abs(end - start) * 1j * rng.uniform(-2, 2, count)
    return start + along * (end - start) + across


def double_pendulum() -> TrackedPoints:
    upper, lower = rod(PIVOT, JOINT), rod(JOINT - 2j, -2.0 - 30.0j)
    first = PIVOT + np.exp(1j * FIRST)[:, None] * (upper - PIVOT)
    joint = PIVOT + np.exp(1j * FIRST) * (JOINT - PIVOT)
    second = joint[:, None] + np.exp(1j * SECOND)[:, None] * (lower - JOINT)
    return seen(np.concatenate([upper, lower]), np.concatenate([first, second], 1), noise=0.1)


def test_rigid_motion_is_recovered_from_noisy_tracks() -> None:
    points = rod(0j, 30.0 + 10.0j)
    tracks = np.exp(1j * FIRST)[:, None] * points + (2 * TIMES + 1j * SECOND)[:, None]
    motion = RigidMotion.fit(seen(points, tracks, noise=0.1))
    assert np.abs(motion.angles - FIRST).max() < 0.005
    assert np.abs(motion.shifts - 2 * TIMES - 1j * SECOND).max() < 0.1
    exact = RigidMotion.fit(seen(points, tracks))
    assert np.abs(exact.angles - FIRST).max() < 1e-9


def test_two_arms_hang_on_a_pivot_and_a_joint() -> None:
    tracked = double_pendulum()
    one, two = [parts for parts, _ in zip(partitions(tracked, 4), range(2))]
    assert one.typical_error() > 2.0
    assert two.typical_error() < 0.2
    upper = two.labels[0]
    assert (two.labels[:120] == upper).mean() > 0.95
    assert (two.labels[120:] != upper).mean() > 0.95
    joints = hang_together(two.motions, [tracked[two.labels == k] for k in range(2)], 256.0)
    assert joints[upper].kind == joints[1 - upper].kind == "pivot"
    assert (joints[upper].parent, joints[1 - upper].parent) == (-1, upper)
    assert abs(joints[upper].anchor - PIVOT) < 0.1
    assert abs(joints[1 - upper].anchor - JOINT) < 0.1
    (modes,) = modes_of(tree_of_parts(tracked, two, joints))
    assert modes.num_coordinates == 2
    assert modes.residual < 0.25
    for k, angle in enumerate((FIRST, SECOND)):  # coordinates are the arms' angles, up to offset and scale
        assert abs(np.corrcoef(modes.q[:, k], angle)[0, 1]) > 0.9995


def test_cart_slides_and_its_pole_turns() -> None:
    cart, pole = rod(-15.0 + 0j, 15.0 + 0j), rod(0j, -30.0j)
    place = 12 * np.sin(4 * TIMES) * np.exp(0.1j)
    tracks = np.concatenate([place[:, None] + cart, place[:, None] + np.exp(1j * SECOND)[:, None] * pole], axis=1)
    tracked = seen(np.concatenate([cart, pole]), tracks, noise=0.05)
    *_, parts = (found for found, _ in zip(partitions(tracked, 4), range(2)))
    joints = hang_together(parts.motions, [tracked[parts.labels == k] for k in range(2)], 256.0)
    root = parts.labels[0]
    assert (joints[root].kind, joints[root].parent) == ("slide", -1)
    assert abs(abs((joints[root].direction * np.exp(-0.1j)).real) - 1) < 1e-4
    assert (joints[1 - root].kind, joints[1 - root].parent) == ("pivot", root)
    assert abs(joints[1 - root].anchor) < 0.1


def test_plain_ball_on_a_string_turns_about_the_center_of_its_circle() -> None:
    """Its own turning is not seen: the tracks say that it only shifts."""
    ball = 5 * np.sqrt(np.random.default_rng(2).random(150)) * np.exp(2j * np.pi * np.random.default_rng(3).random(150))
    arm = -60j * np.exp(1j * FIRST)
    tracked = seen(ball - 60j, arm[:, None] + ball, share=0.05)
    motion = RigidMotion.fit(tracked)
    (joint,) = hang_together([motion], [tracked], 256.0)
    assert joint.kind == "pivot"
    assert abs(joint.anchor - (ball.mean())) < 0.05  # the string's end as the middle of the points sees it


def test_circle_is_fitted_through_outliers() -> None:
    path = 3 + 2j + 50 * np.exp(1j * np.linspace(0.2, 1.4, 80))
    path[::16] += 9.0
    center, radius = fit_circle(path)
    assert abs(center - (3 + 2j)) < 0.2
    assert abs(radius - 50) < 0.2


def rope(amplitudes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points [N] of a rope 100 px long that hangs from 0, and tracks [T, N]: two modes of its angle."""
    rng = np.random.default_rng(4)
    along, across = rng.random(400), rng.uniform(-3, 3, 400)
    grid = np.linspace(0, 1, 500)
    angle = amplitudes[:, :1] * (0.6 + 0.4 * grid) + amplitudes[:, 1:] * np.sin(2 * np.pi * grid)
    line = np.concatenate([np.zeros((len(angle), 1)), np.cumsum(-100j * np.exp(1j * angle) / 500, 1)], 1)
    place = np.minimum((along * 500).astype(int), 499)
    tracks = line[:, place] + across * np.exp(1j * angle[:, place])
    return tracks[0], tracks


def test_rope_is_a_chain_with_two_modes() -> None:
    points, tracks = rope(np.stack([0.8 * np.sin(4 * TIMES), 0.5 * np.sin(9 * TIMES)], 1))
    chain = find_chain(tracks, points, area_px=600.0)
    assert chain is not None
    assert chain.has_fixed_root
    assert abs(chain.joints[0]) < 2.0
    found = modes_of(bending_chain(seen(points, tracks, noise=0.05), chain))
    assert [modes.num_coordinates for modes in found] == [1, 2]
    assert found[0].residual > 2.0
    assert found[1].residual < 0.4


def test_a_disk_is_no_chain() -> None:
    rows, columns = np.mgrid[-20:21:2, -20:21:2]
    points = (columns + 1j * rows)[np.hypot(rows, columns) < 20]
    assert find_chain(np.broadcast_to(points, (20, len(points))), points, area_px=np.pi * 400) is None


def test_plain_areas_say_nothing_and_edges_say_where_across() -> None:
    picture = np.zeros((40, 40, 3), np.uint8)
    picture[:, 20:] = 255
    inside, edge = structure_tensors(picture, np.array([5.0 + 20j, 20.0 + 20j]))
    assert np.linalg.eigvalsh(inside).max() == pytest.approx(0.05)
    assert edge[0, 0] > 0.9
    assert edge[1, 1] == pytest.approx(0.05)


def drawn(first: float, second: float, size: int = 128) -> np.ndarray:
    """A double pendulum with striped arms before a gray wall."""
    big = np.full((4 * size, 4 * size, 3), 190, np.uint8)
    at = np.array([64.0, 20.0])
    for angle, colors in ((first, ((200, 40, 40), (240, 200, 40))), (second, ((30, 60, 200), (60, 200, 90)))):
        step = 8.0 * np.array([np.sin(angle), np.cos(angle)])
        for k in range(5):
            ends = [tuple(int(v) for v in np.round(4 * (at + s * step))) for s in (k, k + 1)]
            cv2.line(big, ends[0], ends[1], colors[k % 2], 28)
        at = at + 5 * step
    return cv2.resize(big, (size, size), interpolation=cv2.INTER_AREA)


ANGLES = np.stack([0.5 * np.cos(np.arange(24) / 6), 0.6 * np.sin(7 * np.arange(24) / 30)], 1)
Found = tuple[Modes, Deformation, np.ndarray]


@pytest.fixture(scope="module")
def clip() -> PreparedClip:
    """24 frames of the drawn pendulum."""
    frames = np.stack([drawn(*pair) for pair in ANGLES])
    dis = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    gray = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    flow = np.stack([dis.calc(a, b, None) for a, b in zip(gray, gray[1:])])
    masks = np.abs(frames.astype(int) - 190).max(-1) > 25
    return clip_in_memory(frames, masks, flow, np.full_like(frames[0], 190))


@pytest.fixture(scope="module")
def found(clip: PreparedClip) -> Found:
    result = find_structure(clip, None)
    assert result is not None
    return result


def test_pixels_are_followed_through_the_clip(found: Found) -> None:
    _, followed, _ = found
    pivot = 64 + 20j
    reach = 40.0 * np.array([1j * np.exp(-1j * a) for a in ANGLES.T])  # u + i v; angle 0 hangs down
    end = pivot + reach[:, followed.reference].sum()
    tip, joint = followed.points[np.abs(followed.points - end).argmin()], pivot + reach[0]
    k = int(np.abs(followed.points - tip).argmin())
    turned = np.exp(-1j * (ANGLES[:, 1] - ANGLES[followed.reference, 1]))
    expected = joint + turned * (followed.points[k] - joint[followed.reference])
    assert np.abs(followed.tracks()[:, k] - expected).max() < 1.5


def test_drawn_pendulum_becomes_a_tree_of_two_parts(found: Found) -> None:
    modes, followed, _ = found
    bases = modes.structure.bases
    assert bases.parents.tolist() == [-1, 0]
    pivot, joint = bases.anchors.numpy()
    assert np.abs(pivot - (0.0, 44.0)).max() < 1.0
    first = ANGLES[followed.reference, 0]
    assert np.abs(joint - np.array([40 * np.sin(first), 44.0 - 40 * np.cos(first)])).max() < 1.0
    turned = np.ptp(modes.q, axis=0) * np.abs(modes.directions).sum(0)
    assert np.abs(turned / np.ptp(ANGLES, axis=0) - 1).max() < 0.05


def test_gaussians_are_placed_on_the_parts_and_carried_with_them(clip: PreparedClip, found: Found) -> None:
    start, camera = StructureStart(*found), FilmingCamera(128, 128, 153.6)
    fields = start.spec_fields()
    assert fields == {"num_bases": 2, "parents": (-1, 0), "latent_dim": 2, "is_embedded": True}
    assert "2 latent coordinate(s) explain the tracks" in start.description()
    scene = LatentScene(SceneSpec(150, 10, 24, 128, 128, camera.focal, **fields))
    start.place(scene, [clip], camera, seed=0)
    with torch.no_grad():
        means = scene.moving_at_frames(torch.arange(24))[0]
        upper_share = scene.skinning[:, 0].numpy()
    pixels = camera.pixels_from_plane(means[..., 0::2]).double().numpy()
    for k, (first, _) in enumerate(ANGLES):
        columns, rows = pixels[k].astype(int).T
        near = cv2.dilate(clip.masks[k].astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
        assert near[rows, columns].mean() > 0.95
        along = (pixels[k] - (64.0, 20.0)) @ np.array([np.sin(first), np.cos(first)])
        is_upper = upper_share > 0.5
        assert is_upper[along < 33].mean() > 0.95
        assert is_upper[along > 47].mean() < 0.05
