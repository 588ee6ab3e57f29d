"""A scene in motion: MuJoCo steps, balances, and the equation of motion linearized at rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.bench.mjcf import CAMERA_DISTANCE
from lagsplat_ns.bench.opengl import load_mujoco
from lagsplat_ns.bench.scene import BuiltScene

__all__ = ["RECORD_RATE", "Modes", "Motion", "Physics", "PointForce"]

RECORD_RATE = 120  # records per second: four per frame of a clip

InputCourse = Callable[[float], Sequence[float]]


@dataclass(frozen=True)
class PointForce:
    """A constant force on a watched point from `start_s` to `end_s`: newtons, x right and z up."""

    point: str
    force: tuple[float, float]
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Motion:
    """Records of a motion: times [K] seconds, joints [K, n], watched points [K, P, 2] meters (x, z), energy [K] J."""

    times_s: Float64[np.ndarray, " K"]
    qpos: Float64[np.ndarray, "K n"]
    qvel: Float64[np.ndarray, "K n"]
    points: Float64[np.ndarray, "K P 2"]
    energy: Float64[np.ndarray, " K"]


@dataclass(frozen=True)
class Modes:
    """Eigenvalues of the linearized motion at rest, one per mode with Im >= 0, slowest first, and their shapes.

    values [m] 1/s (complex); right, left [2 n, m]: eigenvectors of (qpos, qvel), left^H right = 1; shapes [m, P, 2]:
    movement of the watched points per unit amplitude, meters (complex).
    """

    values: Any
    right: np.ndarray
    left: np.ndarray
    shapes: np.ndarray

    @property
    def frequencies_hz(self) -> Float64[np.ndarray, " m"]:
        return np.abs(self.values.imag) / (2 * math.pi)

    @property
    def decay_rates(self) -> Float64[np.ndarray, " m"]:
        """Rates at which amplitudes shrink, 1/s."""
        return -self.values.real


class Physics:
    """The true mechanics of one built scene."""

    def __init__(self, scene: BuiltScene) -> None:
        self.scene = scene
        self.mujoco: Any = load_mujoco()
        self.model: Any = self.mujoco.MjModel.from_xml_string(scene.xml)
        self.data: Any = self.mujoco.MjData(self.model)
        steps = math.ceil(1.0 / RECORD_RATE / scene.step_s - 1e-9)
        self._steps_per_record = steps
        self.model.opt.timestep = 1.0 / RECORD_RATE / steps
        self._sites = [self.model.site(name).id for name in scene.points]
        self.num_inputs = len(scene.inputs)

    # ---- facts
    @property
    def num_joints(self) -> int:
        return int(self.model.nv)

    @property
    def mass_kg(self) -> float:
        """Mass of everything that moves."""
        return float(self.model.body_mass[1:][self._moving_bodies()[1:]].sum())

    def _moving_bodies(self) -> np.ndarray:
        """Whether a body hangs on any joint."""
        moving = np.zeros(self.model.nbody, dtype=bool)
        for body in range(1, self.model.nbody):
            moving[body] = self.model.body_dofnum[body] > 0 or moving[self.model.body_parentid[body]]
        return moving

    def moving_geoms(self) -> np.ndarray:
        """Whether a geom belongs to a body that moves."""
        return self._moving_bodies()[self.model.geom_bodyid]

    def pixels(
        self, points: Float64[np.ndarray, "*B P 2"], size: tuple[int, int], fronts: Float64[np.ndarray, " P"]
    ) -> Float64[np.ndarray, "*B P 2"]:
        """Pixels of places (x, z) in meters, `fronts` meters before the plane, in a picture of (width, height)."""
        width, height = size
        per_meter = 0.5 * max(size) / self.scene.unit_m
        nearer = CAMERA_DISTANCE / (CAMERA_DISTANCE - np.asarray(fronts) / self.scene.unit_m)
        x = width / 2 + per_meter * nearer * points[..., 0]
        y = height / 2 - per_meter * nearer * points[..., 1]
        return np.stack([x, y], axis=-1)

    def fronts(self) -> Float64[np.ndarray, " P"]:
        """How far before the plane the watched points lie, meters."""
        self._forward()
        return -np.array([self.data.site_xpos[k][1] for k in self._sites])

    # ---- motion
    def simulate(
        self,
        qpos: Float64[np.ndarray, " n"],
        qvel: Float64[np.ndarray, " n"],
        seconds: float,
        *,
        inputs: InputCourse | None = None,
        forces: Sequence[PointForce] = (),
        start_s: float = 0.0,
    ) -> Motion:
        """The motion from a state at `start_s` on, recorded `RECORD_RATE` times per second, both ends included.

        Inputs are taken in the middle of every step. Forces begin and end at records.
        """
        data, count = self.data, round(seconds * RECORD_RATE) + 1
        self.mujoco.mj_resetData(self.model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        rows_q, rows_v = np.empty((count, self.num_joints)), np.empty((count, self.num_joints))
        points, energy = np.empty((count, len(self._sites), 2)), np.empty(count)
        step = float(self.model.opt.timestep)
        for k in range(count):
            now = start_s + k / RECORD_RATE
            data.ctrl[:] = 0.0
            if inputs is not None:
                data.ctrl[: self.num_inputs] = inputs(now)
            self._forward()
            rows_q[k], rows_v[k], points[k] = data.qpos, data.qvel, self._places()
            energy[k] = data.energy.sum()
            if k == count - 1:
                break
            self._set_forces(forces, now + 0.5 / RECORD_RATE)
            if inputs is None:
                self.mujoco.mj_step(self.model, data, self._steps_per_record)
                continue
            for j in range(self._steps_per_record):
                data.ctrl[: self.num_inputs] = inputs(now + (j + 0.5) * step)
                self.mujoco.mj_step(self.model, data)
        if not (np.isfinite(rows_q).all() and np.isfinite(rows_v).all()):
            raise FloatingPointError(
                "A scene's motion must stay finite, but MuJoCo lost it.\n  Use a smaller `step_s` or softer parameters."
            )
        return Motion(start_s + np.arange(count) / RECORD_RATE, rows_q, rows_v, points, energy)

    def _set_forces(self, forces: Sequence[PointForce], now: float) -> None:
        self.data.ctrl[self.num_inputs :] = 0.0
        for force in forces:
            if force.start_s <= now < force.end_s:
                self._add_force(force.point, force.force)

    def _add_force(self, point: str, force: tuple[float, float]) -> None:
        first = self.num_inputs + 2 * self.scene.points.index(point)
        self.data.ctrl[first] += force[0]
        self.data.ctrl[first + 1] += force[1]

    def _forward(self) -> None:
        self.mujoco.mj_forward(self.model, self.data)

    def _places(self) -> Float64[np.ndarray, "P 2"]:
        return np.stack([self.data.site_xpos[k][[0, 2]] for k in self._sites])

    # ---- balance and what surrounds it
    def balance(self, pulls: Sequence[tuple[str, tuple[float, float]]] = ()) -> Float64[np.ndarray, " n"]:
        """The joints at rest without inputs, under constant forces (newtons, x and z) on watched points.

        Forces grow from zero, each time followed by Newton steps. Raises: ArithmeticError without a balance.
        """
        qpos = self.model.qpos0.copy()
        shares = np.linspace(0.1, 1.0, 10) if pulls else np.zeros(1)
        for share in np.concatenate([np.zeros(1), shares]):
            held = [(point, (share * f[0], share * f[1])) for point, f in pulls]
            for _ in range(60):
                accelerations, slope = self._accelerations(qpos, held), self._position_slope(qpos, held)
                change = np.linalg.lstsq(slope, -accelerations, rcond=1e-11)[0]
                qpos = qpos + change * min(1.0, 0.5 / max(float(np.abs(change).max()), 1e-300))
                if np.abs(change).max() < 1e-11:
                    break
            else:
                raise ArithmeticError(
                    f"A scene must come to rest, but Newton's steps stay at {np.abs(change).max():.3g}.\n"
                    "  Use weaker pulls or stiffer parameters."
                )
        return qpos

    def _accelerations(
        self,
        qpos: Float64[np.ndarray, " n"],
        held: Sequence[tuple[str, tuple[float, float]]] = (),
        qvel: Float64[np.ndarray, " n"] | None = None,
    ) -> Float64[np.ndarray, " n"]:
        self.data.qpos[:], self.data.qvel[:], self.data.ctrl[:] = qpos, 0.0 if qvel is None else qvel, 0.0
        for point, force in held:
            self._add_force(point, force)
        self._forward()
        return self.data.qacc.copy()

    def _position_slope(
        self, qpos: Float64[np.ndarray, " n"], held: Sequence[tuple[str, tuple[float, float]]] = ()
    ) -> Float64[np.ndarray, "n n"]:
        h, columns = 1e-6, []
        for k in range(self.num_joints):
            shift = h * np.eye(self.num_joints)[k]
            columns.append(
                (self._accelerations(qpos + shift, held) - self._accelerations(qpos - shift, held)) / (2 * h)
            )
        return np.stack(columns, axis=1)

    def point_jacobian(self, qpos: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "P 2 n"]:
        """How the watched points move (x, z; meters) per unit of every joint."""
        self._accelerations(qpos)
        jacobian = np.zeros((3, self.num_joints))
        rows = []
        for k in self._sites:
            self.mujoco.mj_jacSite(self.model, self.data, jacobian, None, k)
            rows.append(jacobian[[0, 2]].copy())
        return np.stack(rows)

    def mass_matrix(self, qpos: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "n n"]:
        """M(q) in SI units of the joints, by the inverse dynamics of unit accelerations."""
        columns = []
        self._accelerations(qpos)
        for k in range(self.num_joints):
            column = np.zeros(self.num_joints)
            self.mujoco.mj_mulM(self.model, self.data, column, np.eye(self.num_joints)[k])
            columns.append(column)
        return np.stack(columns, axis=1)

    def modes(self, qpos: Float64[np.ndarray, " n"]) -> Modes:
        """The linearized motion around a rest state."""
        n, h = self.num_joints, 1e-6
        slope = np.zeros((2 * n, 2 * n))
        slope[:n, n:] = np.eye(n)
        slope[n:, :n] = self._position_slope(qpos)
        for k in range(n):
            shift = h * np.eye(n)[k]
            difference = self._accelerations(qpos, qvel=shift) - self._accelerations(qpos, qvel=-shift)
            slope[n:, n + k] = difference / (2 * h)
        eigen: Any = np.linalg.eig(slope)
        values, right = eigen
        left = np.linalg.inv(right).conj().T
        chosen = [k for k in np.argsort(np.abs(values)) if values[k].imag >= -1e-9 * (1 + abs(values[k]))]
        shapes = np.einsum("pcn,nm->mpc", self.point_jacobian(qpos).astype(complex), right[:n, chosen])
        return Modes(values[chosen], right[:, chosen], left[:, chosen], shapes)
