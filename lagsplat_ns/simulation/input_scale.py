"""What a measured force or torque tells about the scale of all forces: newtons, or newton meters, per picture unit."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lagsplat_ns.dynamics.equilibrium import rest_state
from lagsplat_ns.gaussians.scene import LatentScene
from lagsplat_ns.simulation.calibration import Calibration

__all__ = ["InputScale", "calibration_from", "input_scales"]

_TORQUES = {"Nm": 1.0, "mNm": 1e-3, "kNm": 1e3}
_FORCES = {"N": 1.0, "mN": 1e-3, "kN": 1e3, "lbf": 4.4482216}
_PARALLEL = 0.97
_SAME = 1.15
_TURNING = 0.02
_RAIL = 0.05
"""movement across a slide, over that along it, up to which it counts as none"""


@dataclass(frozen=True)
class InputScale:
    """What one input in known units tells.

    kind "force": `value` is newtons per picture unit of force (mass in kg times meters per picture unit); "torque":
    newton meters per picture unit of torque (mass times the square of that length). None where it cannot be told.
    """

    name: str
    kind: Literal["force", "torque"]
    value: float | None
    reason: str


@torch.no_grad()
def input_scales(scene: object) -> list[InputScale]:
    """The scale that every input in units of force or torque implies, at the rest state; of trained scenes alone."""
    if not isinstance(scene, LatentScene):
        return []
    spec, mechanism = scene.spec, scene.mechanism
    if mechanism is None or mechanism.inputs is None or not spec.input_units:
        return []
    known = [(k, name, u) for k, (name, u) in enumerate(zip(spec.input_names, spec.input_units)) if u in _UNITS]
    if not known:
        return []
    physics = copy.deepcopy(mechanism).cpu().double()
    q = rest_state(physics, scene.paths[0].q[-1].cpu().double())
    mass = physics.mass_matrix(q)
    result = []
    for k, name, unit in known:
        one = torch.zeros(spec.num_inputs, dtype=torch.float64)
        one[k] = 1.0 / _UNITS[unit]
        push = physics.input_force(q, one)  # the generalized force of one newton (meter)
        kind: Literal["force", "torque"] = "torque" if unit in _TORQUES else "force"
        if float(push.norm()) == 0.0:
            result.append(InputScale(name, kind, None, "it has no effect in these clips"))
            continue
        candidates = _turns(scene, q) if kind == "torque" else _slides(scene, q, push)
        found = []
        for row in candidates:
            size = float(row @ torch.linalg.solve(mass, row)) ** 0.5
            along = float(row @ torch.linalg.solve(mass, push))
            whole = float(push @ torch.linalg.solve(mass, push)) ** 0.5
            if size > 0 and abs(along) > _PARALLEL * size * whole:
                found.append(size / whole)
        if not found:
            what = "turns a part about a joint" if kind == "torque" else "pushes a part that slides without turning"
            result.append(InputScale(name, kind, None, f"no part moves as if it {what}"))
        elif max(found) > _SAME * min(found):
            result.append(
                InputScale(name, kind, None, "several parts move alike, and it is not known on which it acts")
            )
        else:
            result.append(InputScale(name, kind, float(torch.tensor(found).log().mean().exp()), ""))
    return result


_UNITS = {**_TORQUES, **_FORCES}


def _turns(scene: LatentScene, q: Tensor) -> list[Float[Tensor, " d"]]:
    """How the angle of every part, and between every two parts, follows q: d angle / dq."""
    rows = list(_angle_rows(scene, q))
    return rows + [b - a for a, b in itertools.combinations(rows, 2)]


def _slides(scene: LatentScene, q: Tensor, push: Tensor) -> list[Float[Tensor, " d"]]:
    """The generalized forces of a unit force on parts that slide without turning, along the push's own direction."""
    jacobian = scene.jacobian(q.to(scene.path_q))[: scene.num_moving, 0::2].double().cpu()
    owner = scene.skinning.argmax(-1).cpu()
    weights = scene.mass_weights().double().cpu()
    result = []
    for part, turn in enumerate(_angle_rows(scene, q)):
        own = owner == part
        if not bool(own.any()):
            continue
        share = weights[own] / weights[own].sum()
        center = torch.einsum("m,mcd->cd", share, jacobian[own])
        if float(turn.norm()) > _TURNING * float(center.norm()):
            continue
        # a part on rails hardly moves across them: that says nothing about where the force points
        direction = torch.linalg.lstsq(center.T, push[:, None], rcond=_RAIL, driver="gelsd").solution[:, 0]
        if float(direction.norm()) > 0:
            result.append(center.T @ (direction / direction.norm()))
    return result


def _angle_rows(scene: LatentScene, q: Tensor) -> Float[Tensor, "P d"]:
    bases = copy.deepcopy(scene.bases).cpu().double()
    step = 1e-5
    shifts = step * torch.eye(len(q), dtype=torch.float64)
    return ((bases.angles(q + shifts) - bases.angles(q - shifts)) / (2 * step)).T


def calibration_from(
    scales: list[InputScale], meters_per_unit: float | None = None
) -> tuple[Calibration | None, list[str]]:
    """The calibration that measured inputs give, and notes on what is calibrated and what is not.

    meters_per_unit: length of one picture unit (half the larger side of the picture), if it is known.
    """
    notes, result = [], None
    for scale in scales:
        if scale.value is None:
            notes.append(f"{scale.name} does not set the unit of pushes: {scale.reason}.")
        elif scale.kind == "force":
            result = result or Calibration(scale.value, f"measured input {scale.name}", meters_per_unit)
            notes.append(f"{scale.name} sets the unit of pushes: one picture unit of force is {scale.value:.4g} N.")
        else:
            text = f"{scale.name}: one picture unit of torque is {scale.value:.4g} Nm."
            if meters_per_unit is None:
                text += (
                    " Pushes stay in picture units, since newtons need a length as well: "
                    "lagsplat calibrate CONFIG --length-m METERS --between X1 Y1 X2 Y2."
                )
            elif result is None:
                newtons = scale.value / meters_per_unit
                result = Calibration(newtons, f"measured input {scale.name} and a known length", meters_per_unit)
                text += f" With {meters_per_unit:.4g} m per picture unit, one unit of force is {newtons:.4g} N."
            notes.append(text)
    return result, notes
