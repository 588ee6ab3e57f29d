"""Laws that a simulator must keep, checked from outside: superposition, empty background, mass, modes, long runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from lagsplat_ns.bench.following import BodyPoints, put_at_rest
from lagsplat_ns.bench.spectrum import linearized_modes
from lagsplat_ns.bench.truth import Truth
from lagsplat_ns.dynamics.equations import forward_dynamics
from lagsplat_ns.dynamics.mechanism import Mechanism
from lagsplat_ns.simulator import Grip, Simulator
from lagsplat_ns.types import State

__all__ = ["LongRun", "background_leakage", "long_run", "mass_profile_error", "modes", "superposition_error"]

PUSH_FACTOR = 100.0
GONE_SHARE = 1e-4  # of the motion that the push made: what is smaller has gone
CPU_LIMIT_S = 120.0


@dataclass(frozen=True)
class LongRun:
    """The course after a push a hundred times too strong.

    times_s, sizes [K]: seconds since the push, and how far the state is from where it ends or began, in ranges of the
    clip; largest_rise: of the energy between two records, over the energy after the push; seconds: how long was
    simulated before the motion had gone or the time was up.
    """

    times_s: Float64[np.ndarray, " K"]
    sizes: Float64[np.ndarray, " K"]
    is_finite: bool
    is_gone: bool
    largest_rise: float
    seconds: float

    @property
    def is_passed(self) -> bool:
        return self.is_finite and self.is_gone and self.largest_rise <= 1e-6


def mechanism_of(sim: Simulator) -> Mechanism:
    """The simulator's equation of motion in double precision."""
    mechanism = sim.scene.mechanism
    assert mechanism is not None
    return mechanism.double().cpu()


def _masses(sim: Simulator, q: torch.Tensor) -> torch.Tensor:
    mechanism = sim.scene.mechanism
    if isinstance(mechanism, Mechanism):
        with torch.no_grad():
            return mechanism_of(sim).mass_matrix(q)
    return torch.eye(len(q), dtype=torch.float64)


def background_leakage(sim: Simulator, truth: Truth) -> float:
    """Mean kinetic size of the generalized force of a click on the background over that of one on the thing."""
    put_at_rest(sim, truth)
    root = torch.linalg.cholesky(_masses(sim, sim.state.q))

    def strength(grip: Grip) -> float:
        pulled = torch.linalg.solve_triangular(root, sim.grip_jacobian(grip).T, upper=False)
        return float(pulled.norm())

    thing = [strength(sim.grab(push.pixel)) for push in truth.pushes]
    background = [strength(sim.grab((float(x), float(y)))) for x, y in truth.background]
    if max(thing) == 0.0:
        raise ArithmeticError("no click on the thing takes hold of anything")
    return float(np.mean(background) / np.mean(thing))


def superposition_error(sim: Simulator, truth: Truth, time_s: float = 1.0, dt: float = 1e-4) -> float:
    """Two forces at one instant against the sum of each alone: changes of qd in a short step, relative."""
    pixels = truth.paths(np.array([time_s]))[0]
    sim.seek(time_s)
    grips = [grip for grip in (sim.grab((float(x), float(y))) for x, y in pixels) if not grip.is_empty]
    if len(grips) < 2:
        raise ArithmeticError("fewer than two watched points can be grabbed")
    first, second = (grips[0], (1.0, 0.5)), (grips[-1], (-0.4, 0.8))

    def change(*forces: tuple[Grip, tuple[float, float]]) -> torch.Tensor:
        sim.seek(time_s)
        before = sim.state.qd.clone()
        sim.step(dt, forces=list(forces))
        return (sim.state.qd - before) / dt

    free = change()
    both, alone, other = change(first, second) - free, change(first) - free, change(second) - free
    return float((both - alone - other).norm() / (alone.norm() + other.norm()))


def mass_profile_error(sim: Simulator, truth: Truth) -> float:
    """Effective mass seen at the first watched point along the clip, over its mean, against the true profile."""
    frames = len(truth.inertia)
    times = np.arange(frames) / truth.frames_per_second
    kept = np.flatnonzero(times <= sim.clip_end_s)[::3]
    sim.seek(0.0)
    points = BodyPoints(sim, truth.paths(np.zeros(1))[0][:1])
    mechanism, masses = mechanism_of(sim), []
    for k in kept:
        sim.seek(float(times[k]))
        q = sim.state.q
        with torch.no_grad():
            mass = float(mechanism.mass_matrix(q)[0, 0])
        masses.append(mass / float(np.square(points.jacobian(q)).sum()))
    found, true = np.array(masses) / np.mean(masses), truth.inertia[kept] / truth.inertia[kept].mean()
    return float(np.sqrt(np.square(found / true - 1.0).mean()))


def modes(sim: Simulator, truth: Truth) -> list[tuple[float, float]]:
    """(frequency, decay rate) of the simulator's own equation of motion, linearized at rest without inputs."""
    put_at_rest(sim, truth)
    mechanism = mechanism_of(sim)
    no_inputs = torch.zeros(mechanism.num_inputs, dtype=torch.float64) if mechanism.num_inputs else None

    def acceleration(q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        state = State(torch.from_numpy(q), torch.from_numpy(qd))
        with torch.no_grad():
            return forward_dynamics(mechanism, state, inputs=no_inputs).numpy()

    rest = sim.state.q.numpy()
    path = sim.scene.paths[0].q
    spread = float((path.amax(0) - path.amin(0)).max())
    return linearized_modes(acceleration, rest, scale=1e-4 * max(spread, 1e-6))


def long_run(
    sim: Simulator,
    truth: Truth,
    gain: float,
    *,
    seconds: float = 1000.0,
    has_energy: bool = True,
    record_s: float = 0.1,
) -> LongRun:
    """A push `PUSH_FACTOR` times as strong as the first, then free motion.

    Stops early where the motion has gone: at rest in a minimum nothing is left to happen. Also stops, as failed, when
    the numbers are lost or after `CPU_LIMIT_S` of computing.
    """
    put_at_rest(sim, truth)
    push, path = truth.pushes[0], sim.scene.paths[0].q.double().cpu()
    spread = float((path.amax(0) - path.amin(0)).max())
    grip, force = sim.grab(push.pixel), PUSH_FACTOR * gain
    start, rises, sizes, times = sim.state.q.clone(), [0.0], [], []
    is_finite, is_gone, begun = True, False, time.process_time()
    largest_speed = now = 0.0
    try:
        sim.step(push.end_s - push.start_s, forces=[(grip, (force * push.force[0], force * push.force[1]))])
        energy = first_energy = sim.energy() if has_energy else 0.0
        while now < seconds and time.process_time() - begun < CPU_LIMIT_S:
            sim.step(record_s)
            now += record_s
            speed = float(sim.state.qd.norm())
            largest_speed = max(largest_speed, speed)
            sizes.append(float((sim.state.q - start).norm()) / spread)
            times.append(now)
            if has_energy:
                energy, before = sim.energy(), energy
                rises.append((energy - before) / max(abs(first_energy), 1e-300))
                is_gone = energy < GONE_SHARE**2 * abs(first_energy) or first_energy <= 0.0
            else:
                recent = slice(-round(20 / record_s), None)
                is_gone = now > 40 and speed < GONE_SHARE * largest_speed and np.ptp(sizes[recent]) < GONE_SHARE
            if is_gone:
                break
    except FloatingPointError:
        is_finite = False
    if sizes and not np.isfinite(sizes).all():
        is_finite = False
    return LongRun(np.array(times), np.array(sizes), is_finite, is_gone and is_finite, max(rises), now)
