"""The first guess of the motion, against clips whose motion is known."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.gaussians.scene import LatentScene, SceneSpec
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training.flow_start import start_from_flow
from lagsplat_ns.training.starts import FlowStarts, find_structure
from tests.video_clips import clip_in_memory

SIZE = 96


def moving_card(angles: np.ndarray, centers: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames, masks and exact forward flow of a textured card that moves rigidly over a textured wall."""
    rng = np.random.default_rng(seed)
    wall = cv2.GaussianBlur(rng.uniform(0.3, 0.6, (SIZE, SIZE, 3)), (0, 0), 3).astype(np.float32)
    card = cv2.GaussianBlur(rng.uniform(0, 1, (24, 36, 3)), (0, 0), 2).astype(np.float32)
    card = (card - card.min()) / np.ptp(card)
    rows, columns = np.mgrid[:SIZE, :SIZE] + 0.5
    pixels = np.stack([columns, rows], -1)
    frames, masks, places = [], [], []
    for angle, center in zip(angles, centers, strict=True):
        c, s = np.cos(angle), np.sin(angle)
        local = (pixels - center) @ np.array([[c, -s], [s, c]])  # R^T (x - center)
        inside = (np.abs(local[..., 0]) < 17) & (np.abs(local[..., 1]) < 11)
        where = (local + np.array([17.5, 11.5])).astype(np.float32)
        painted = cv2.remap(card, where[..., 0], where[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        frames.append(np.where(inside[..., None], painted, wall))
        masks.append(inside)
        places.append(local)
    flow = np.zeros((len(frames) - 1, SIZE, SIZE, 2), np.float32)
    for t in range(len(flow)):
        c, s = np.cos(angles[t + 1]), np.sin(angles[t + 1])
        target = places[t] @ np.array([[c, s], [-s, c]]) + centers[t + 1]
        flow[t][masks[t]] = (target - pixels)[masks[t]]
    return (np.stack(frames) * 255).astype(np.uint8), np.stack(masks), flow


def swing(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    angles = 0.5 * np.cos(np.linspace(0, 6, count))
    centers = np.array([48.0, 8.0]) + 40 * np.stack([-np.sin(angles), np.cos(angles)], 1)
    return angles, centers


def errors_px(start, angles: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Distance between where the start puts the card's corner and center, and where they are."""
    reference, gaps = start.reference, []
    for local in ([0.0, 0.0], [15.0, 9.0]):

        def truth(t: int, local=local) -> np.ndarray:
            c, s = np.cos(angles[t]), np.sin(angles[t])
            return np.array([[c, -s], [s, c]]) @ local + centers[t]

        for t in range(len(angles)):
            c, s = np.cos(start.angles[t]), np.sin(start.angles[t])
            arm = truth(reference) - start.origin
            found = np.array([[c, -s], [s, c]]) @ arm + start.origin + start.translations[t]
            gaps.append(np.linalg.norm(found - truth(t)))
    return np.array(gaps)


def test_rigid_motion_is_found_to_a_tenth_of_a_pixel() -> None:
    angles, centers = swing()
    start = start_from_flow(*moving_card(angles, centers))
    gaps = errors_px(start, angles, centers)
    assert np.median(gaps) < 0.1 and gaps.max() < 0.5
    assert start.coverage > 0.95


def test_a_biased_flow_does_not_add_up() -> None:
    """A flow that is wrong by 0.3 px everywhere would drift by 12 px along the clip without the pinning."""
    angles, centers = swing()
    frames, masks, flow = moving_card(angles, centers)
    gaps = errors_px(start_from_flow(frames, masks, flow + 0.3), angles, centers)
    assert gaps.max() < 0.8


def test_a_visitor_does_not_pull_the_motion_away() -> None:
    """Another thing that moves in some frames (a hand) is not part of the reference and is ignored."""
    angles, centers = swing()
    frames, masks, flow = moving_card(angles, centers)
    for t in range(6):
        frames[t, 70:90, 2 + 2 * t : 22 + 2 * t] = 230
        masks[t, 70:90, 2 + 2 * t : 22 + 2 * t] = True
        flow[t, 70:90, 2 + 2 * t : 22 + 2 * t] = [2, 0]
    assert errors_px(start_from_flow(frames, masks, flow), angles, centers).max() < 0.8


def test_two_clips_of_one_thing_share_a_reference() -> None:
    angles, centers = swing()
    frames, masks, flow = moving_card(angles, centers)
    first = start_from_flow(frames, masks, flow)
    second = start_from_flow(frames[::-1], masks[::-1], -flow[::-1], template=(frames[first.reference], first))
    shifts = second.translations[::-1] - first.translations
    assert np.abs(shifts).max() < 0.8
    assert np.abs(second.angles[::-1] - first.angles).max() < 0.05


@pytest.mark.parametrize("empty", [0, 39])
def test_frames_without_the_thing_are_bridged(empty: int) -> None:
    angles, centers = swing()
    frames, masks, flow = moving_card(angles, centers)
    masks[empty] = False
    assert np.isfinite(start_from_flow(frames, masks, flow).angles).all()


# ---- Gaussians placed by it


def card_clip(angles: np.ndarray, centers: np.ndarray) -> PreparedClip:
    frames, masks, flow = moving_card(angles, centers)
    return clip_in_memory(frames, masks, flow, np.median(frames, axis=0).astype(np.uint8))


@pytest.mark.parametrize("num_bases", [None, 2])
def test_gaussians_are_placed_on_the_card_and_carried_with_it_in_every_clip(num_bases: int | None) -> None:
    """A second clip begins elsewhere; a second motion, if one is wanted, may differ a little from the first."""
    angles, centers = swing()
    clips = [card_clip(angles, centers), card_clip(angles[12:30][::-1], centers[12:30][::-1])]
    start, camera = FlowStarts(clips, num_bases), FilmingCamera(SIZE, SIZE, 1.2 * SIZE)
    assert start.spec_fields() == {"num_bases": num_bases or 1}
    assert start.area_px() == pytest.approx(35 * 23, rel=0.15)
    scene = LatentScene(SceneSpec(80, 10, 58, SIZE, SIZE, camera.focal, **start.spec_fields()))
    start.place(scene, clips, camera, seed=0)
    with torch.no_grad():
        means = scene.moving_at_frames(torch.arange(58))[0]
    pixels = camera.pixels_from_plane(means[..., 0::2]).numpy()
    for at, masks in ((0, clips[0].masks), (40, clips[1].masks)):
        for k, mask in enumerate(masks):
            near = cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
            columns, rows = pixels[at + k].astype(int).T
            assert near[rows, columns].mean() > 0.95


def test_one_part_on_a_pivot_and_a_thing_that_never_shows_need_no_structure() -> None:
    clip = card_clip(*swing(16))
    assert find_structure(clip, None) is None
    nothing = clip_in_memory(clip.frames, np.zeros_like(clip.masks), clip.flow, clip.background)
    assert find_structure(nothing, None) is None
