"""What training begins with: where the Gaussians of the moving thing are, and the motions that carry them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool
from scipy.spatial import cKDTree

from lagsplat_ns.data.prepare import PreparedClip
from lagsplat_ns.gaussians.articulated import ArticulatedBases
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.render.filming import FilmingCamera
from lagsplat_ns.training import appearance
from lagsplat_ns.training.deformation import Deformation, follow
from lagsplat_ns.training.flow_start import (
    FlowStart,
    parts_from_flow,
    reference_frame,
    start_from_flow,
    uncovered,
)
from lagsplat_ns.training.structure import Modes, find_structures, modes_of

_MOST_BASES = 4
_SKINNING_START = 4.0
"""logit of a primitive's own part when training begins"""
_OTHER_PARTS = 1e-4
"""weight of a part that does not carry a primitive when training begins"""
_LOST = 0.15
"""mean color difference of tracked points from which they count as lost"""
_POOR_PX, _POOR = 2.0, 0.06
"""misfit of a structure, pixels and share of the motion, from which it explains nothing"""
_WORTH = 0.6
"""factor on the misfit that a structure with more coordinates must reach to be preferred"""


@runtime_checkable
class MotionStart(Protocol):
    """What is known of the motion before training."""

    def spec_fields(self) -> dict[str, Any]:
        """Fields of the scene's spec that follow from it."""
        ...

    def area_px(self) -> float:
        """Pixels of the moving thing in its reference frame."""
        ...

    def place(self, scene: LatentScene, clips: list[PreparedClip], camera: FilmingCamera, seed: int) -> None:
        """Fills the moving Gaussians and their motions in."""
        ...


class FlowStarts:
    """Free rigid motions of parts found in the optical flow of the first clip, and found again in the others."""

    def __init__(self, clips: list[PreparedClip], num_bases: int | None) -> None:
        self._clip, self._num_bases = clips[0], num_bases
        self._starts: list[list[FlowStart]] = []
        for clip in clips:
            n = clip.num_train
            seen = (clip.frames[:n], np.array(clip.masks[:n]), clip.flow[: n - 1])
            if not self._starts:
                self._starts.append(parts_from_flow(*seen, max_parts=num_bases or _MOST_BASES))
                continue
            templates = [(clips[0].frames[part.reference], part) for part in self._starts[0]]
            self._starts.append([start_from_flow(*seen, template=template) for template in templates])
        self._masks = self._part_masks()

    def spec_fields(self) -> dict[str, Any]:
        return {"num_bases": self._num_bases or len(self._starts[0])}

    def area_px(self) -> float:
        return float(sum(mask.sum() for mask in self._masks))

    def _part_masks(self) -> list[Bool[np.ndarray, "H W"]]:
        """Pixels of every part in its reference frame of the first clip, without those of the parts before it."""
        clip, parts = self._clip, self._starts[0]
        masks = []
        for k, part in enumerate(parts):
            left = clip.masks[part.reference]
            for other in parts[:k]:
                left = uncovered(other.at([part.reference]), left[None])[0]
            grown = appearance.object_mask(clip.frames[part.reference], clip.background, left)
            for other in parts[:k]:
                grown = uncovered(other.at([part.reference]), grown[None])[0]
            masks.append(grown if grown.any() else left)
        return masks

    def place(self, scene: LatentScene, clips: list[PreparedClip], camera: FilmingCamera, seed: int) -> None:
        parts, masks, rng = self._starts[0], self._masks, np.random.default_rng(seed)
        num_bases, total = scene.spec.num_bases, scene.spec.num_frames
        shares = np.cumsum([0.0] + [mask.sum() for mask in masks]) / sum(mask.sum() for mask in masks)
        edges = np.round(shares * scene.num_moving).astype(int).tolist()
        skinning = np.zeros((scene.num_gaussians, num_bases))
        for k, (part, mask) in enumerate(zip(parts, masks, strict=True)):
            rows = slice(edges[k], edges[k + 1])
            appearance.fill_moving(scene, camera, clips[0].frames[part.reference], mask, rows, seed + k)
            skinning[rows, k] = _SKINNING_START
        angles, shifts = np.zeros((total, num_bases)), np.zeros((total, num_bases, 2))
        origin = parts[0].origin
        offsets = np.cumsum([0] + [len(clip.times_s) for clip in clips])
        for starts, offset in zip(self._starts, offsets[:-1], strict=True):
            for k in range(num_bases):
                start = starts[min(k, len(starts) - 1)].about(origin)
                rows = slice(offset, offset + len(start.angles))
                angles[rows, k], shifts[rows, k] = start.angles, start.translations
        if num_bases > len(parts):  # more bases than parts were asked for: they must differ before they can part
            angles[:, len(parts) :] += 0.01 * rng.standard_normal((total, num_bases - len(parts)))
            skinning += 0.1 * rng.standard_normal(skinning.shape)
        with torch.no_grad():
            scene.gauss_params["skinning"].copy_(torch.from_numpy(skinning))
        appearance.set_frame_motions(scene, camera, origin, angles, shifts)


class StructureStart:
    """Parts tied into trees, or a bending chain, with coordinates q of the first clip's training frames."""

    def __init__(self, modes: Modes, deformation: Deformation, mask: Bool[np.ndarray, "H W"]) -> None:
        self._modes, self._deformation, self._mask = modes, deformation, mask

    def spec_fields(self) -> dict[str, Any]:
        bases = self._modes.structure.bases
        return {
            "num_bases": bases.num_bases,
            "parents": tuple(bases.parents.tolist()),
            "latent_dim": self._modes.num_coordinates,
            "is_embedded": True,
        }

    def area_px(self) -> float:
        return float(self._mask.sum())

    def description(self) -> str:
        """What was found, in words."""
        modes = self._modes
        return (
            f"{modes.structure.description}: {modes.num_coordinates} latent coordinate(s) explain the tracks to "
            f"{modes.residual:.2f} px"
        )

    def place(self, scene: LatentScene, clips: list[PreparedClip], camera: FilmingCamera, seed: int) -> None:
        structure, found = self._modes.structure, self._deformation
        frame = clips[0].frames[found.reference]
        appearance.fill_moving(scene, camera, frame, self._mask, slice(0, scene.num_moving), seed)
        canonical = scene.gauss_params["means"].detach()[: scene.num_moving, 0::2].cpu().double().numpy()
        tree = cKDTree(np.stack([structure.points.real, structure.points.imag], 1) * camera.pixel_size)
        weights = structure.skinning[tree.query(canonical, k=4)[1]].mean(1)
        with torch.no_grad():
            logits = np.log(weights + _OTHER_PARTS)
            scene.gauss_params["skinning"][: scene.num_moving] = torch.from_numpy(logits).to(scene.frame_q)
            q = self._modes.q
            scene.frame_q[: len(q)] = torch.from_numpy(q).to(scene.frame_q)
        assert isinstance(scene.bases, ArticulatedBases)
        scene.bases.load_state_dict(_in_plane(self._modes, camera.pixel_size).state_dict())


def _in_plane(modes: Modes, pixel_size: float) -> ArticulatedBases:
    """The bases as functions of q, in units of the scene instead of pixels."""
    pixels = modes.structure.bases
    mean = torch.from_numpy(modes.mean)
    directions = torch.from_numpy(modes.directions)
    result = ArticulatedBases(modes.num_coordinates, pixels.parents.tolist())
    with torch.no_grad():
        result.angle_offsets.copy_(pixels.angle_offsets + pixels.angle_rows @ mean)
        result.angle_rows.copy_(pixels.angle_rows @ directions)
        result.anchors.copy_(pixels.anchors * pixel_size)
        result.slide_offsets.copy_((pixels.slide_offsets + pixels.slide_rows @ mean) * pixel_size)
        result.slide_rows.copy_(pixels.slide_rows @ directions * pixel_size)
        result.has_free_rows.fill_(modes.structure.is_modal)
    return result


def find_structure(
    clip: PreparedClip, latent_dim: int | None
) -> tuple[Modes, Deformation, Bool[np.ndarray, "H W"]] | None:
    """The structure that explains a clip's training frames, or None where free motions say as much or more.

    Those are one part on a pivot, whose place pictures tell better than tracks, a free part, and motions that no
    structure explains. latent_dim: the number of coordinates that is wanted, if any.
    """
    n = clip.num_train
    masks = np.array(clip.masks[:n])
    if not masks.any():
        return None
    reference = reference_frame(masks, clip.flow[: n - 1])
    frame = clip.frames[reference]
    mask = appearance.object_mask(frame, clip.background, masks[reference])
    if mask.sum() < 40:
        return None
    found = follow(clip.frames[:n], mask, clip.flow[: n - 1], reference)
    if float(np.median(found.misfit)) > _LOST:
        return None
    spread = float(np.sqrt(np.square(np.abs(found.tracks() - found.tracks().mean(0))).mean()))
    best: Modes | None = None
    for structure in find_structures(found, frame, float(mask.sum())):
        options = modes_of(structure)
        modes = options[-1]
        if latent_dim is not None:
            fitting = [option for option in options if option.num_coordinates == latent_dim]
            if not fitting:
                continue
            modes = fitting[0]
        if best is None or _is_better(modes, best):
            best = modes
    if best is None or best.structure.is_one_turning_part() or best.residual > max(_POOR_PX, _POOR * spread):
        return None
    return best, found, mask


def _is_better(modes: Modes, best: Modes) -> bool:
    """Fewer coordinates win unless more explain much more."""
    more = modes.num_coordinates - best.num_coordinates
    if more == 0:
        return modes.residual < best.residual
    return modes.residual < _WORTH * best.residual if more > 0 else _WORTH * modes.residual < best.residual
