"""Clips with their truth: the scene is simulated, filmed, and pushed six times from rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from lagsplat_ns.bench.filming import film, moving_pixels, write_video
from lagsplat_ns.bench.mjcf import Look
from lagsplat_ns.bench.physics import RECORD_RATE, Modes, Motion, Physics, PointForce
from lagsplat_ns.bench.scene import SceneParameters, registry
from lagsplat_ns.bench.truth import TrueMode, TruePush, Truth

__all__ = ["CLIP_NAME", "FRAME_RATE", "parameters_of", "write_clip"]

CLIP_NAME = "clip.mp4"
FRAME_RATE = 30
LOG_RATE = 100
NUM_PUSHES = 6
PUSH_SECONDS = 5.0


def parameters_of(scene: str, seed: int) -> SceneParameters:
    """The parameters of a scene by its name.

    Raises: ValueError for an unknown name.
    """
    scenes = registry()
    if scene not in scenes:
        raise ValueError(f"A scene must be one of {', '.join(scenes)}, but is {scene!r}.\n  Choose from these.")
    return scenes[scene].from_seed(seed)


def write_clip(
    scene: str | SceneParameters,
    seed: int,
    folder: Path,
    seconds: float = 5.0,
    size: tuple[int, int] = (256, 256),
) -> Truth:
    """Writes clip.mp4, clip.csv where inputs drive the scene, contact.png, truth.json and truth.npz; returns the truth.

    scene: a name, whose parameters `seed` draws, or parameters (then `seed` chooses colors and pushes). size: width
    and height in pixels.
    """
    parameters = parameters_of(scene, seed) if isinstance(scene, str) else replace(scene, seed=seed)
    built, look = parameters.build(), Look.from_seed(seed)
    physics = Physics(built)
    rest = physics.balance()
    inputs, scale = _scaled_inputs(physics, rest)
    motion = _filmed_motion(physics, rest, inputs, 2 * seconds + 0.2)
    _check_energy(parameters.name, motion, is_forced=bool(built.inputs))
    fronts = physics.fronts()
    rest_motion = physics.simulate(rest, np.zeros_like(rest), 0.0)
    modes = physics.modes(rest)
    clip = motion.times_s <= seconds
    pushed_from = motion.qpos[round((seconds - 1 / FRAME_RATE) * RECORD_RATE)] if built.rests_anywhere else rest
    background = _background(moving_pixels(physics, look, pushed_from, size), seed)
    rest_energy, first_energy = rest_motion.energy[0], motion.energy[0]
    log_times = np.arange(-5, round((2 * seconds + 0.1) * LOG_RATE) + 1) / LOG_RATE
    truth = Truth(
        scene=parameters.name,
        kind=parameters.kind,
        seed=seed,
        parameters={**parameters.as_dict(), "input_scale": scale},
        size=size,
        frames_per_second=FRAME_RATE,
        clip_seconds=seconds,
        unit_m=built.unit_m,
        mass_kg=physics.mass_kg,
        num_joints=physics.num_joints,
        rests_anywhere=built.rests_anywhere,
        point_names=built.points,
        modes=_shares(modes, motion, rest, clip),
        input_names=tuple(item.name for item in built.inputs),
        times_s=motion.times_s,
        qpos=motion.qpos,
        qvel=motion.qvel,
        points=physics.pixels(motion.points, size, fronts),
        energy=(motion.energy - rest_energy) / (first_energy - rest_energy),
        rest_points=physics.pixels(physics.simulate(pushed_from, 0 * rest, 0.0).points[0], size, fronts),
        input_times_s=log_times if built.inputs else np.zeros(0),
        inputs=np.array([inputs(t) for t in log_times]) if inputs else np.zeros((0, 0)),
        inertia=_mass_profile(physics, motion.qpos[clip][:: RECORD_RATE // FRAME_RATE]),
        background=background,
        pushes=_pushes(physics, pushed_from, motion, seed, size, fronts),
        point_movers=built.movers,
    )
    frames = list(film(physics, look, motion.qpos[: round(seconds * RECORD_RATE) : RECORD_RATE // FRAME_RATE], size))
    folder.mkdir(parents=True, exist_ok=True)
    write_video(folder / CLIP_NAME, frames, FRAME_RATE)
    if built.inputs:
        _write_log(folder / CLIP_NAME.replace(".mp4", ".csv"), truth)
    _write_contact_sheet(folder / "contact.png", frames, truth)
    truth.save(folder)
    return truth


# ---- the filmed motion
def _scaled_inputs(
    physics: Physics, rest: Float64[np.ndarray, " n"]
) -> tuple[Callable[[float], Sequence[float]] | None, float]:
    """The course of the inputs, with swings that make the wanted travel, and the factor that does."""
    built = physics.scene
    if not built.inputs:
        return None, 1.0
    scale, rest_points = 1.0, physics.simulate(rest, 0 * rest, 0.0).points[0]

    def course(factor: float) -> Callable[[float], Sequence[float]]:
        return lambda time_s: [item.at(time_s, factor) for item in built.inputs]

    for _ in range(6):
        motion = _filmed_motion(physics, rest, course(scale), 10.2)
        travel = np.linalg.norm(motion.points - rest_points, axis=-1).max() / built.unit_m
        ratio = built.input_travel / travel
        if abs(ratio - 1.0) < 0.03:
            break
        scale *= float(np.clip(ratio, 0.4, 2.0))
    return course(scale), scale


def _filmed_motion(
    physics: Physics,
    rest: Float64[np.ndarray, " n"],
    inputs: Callable[[float], Sequence[float]] | None,
    seconds: float,
) -> Motion:
    built = physics.scene
    if inputs is not None:
        warm = physics.simulate(rest, 0 * rest, built.warm_up_s, inputs=inputs, start_s=-built.warm_up_s)
        return physics.simulate(warm.qpos[-1], warm.qvel[-1], seconds, inputs=inputs)
    if built.pulls:
        start = physics.balance([(pull.point, pull.force) for pull in built.pulls])
        return physics.simulate(start, 0 * start, seconds)
    qpos = np.array(built.start_qpos)
    qvel = np.array(built.start_qvel) if built.start_qvel else 0 * qpos
    return physics.simulate(qpos, qvel, seconds)


def _check_energy(name: str, motion: Motion, *, is_forced: bool) -> None:
    """Without inputs, energy never rises by more than round-off and the integrator's error."""
    if is_forced:
        return
    rise = float(np.diff(motion.energy).max())
    span = float(motion.energy.max() - motion.energy.min())
    if rise > 1e-6 * span:
        raise ArithmeticError(
            f"The energy of {name} must not rise, but it does by {rise / span:.2g} of its span within one record.\n"
            "  Use a smaller `step_s`."
        )


def _shares(modes: Modes, motion: Motion, rest: np.ndarray, clip: np.ndarray) -> tuple[TrueMode, ...]:
    """Every mode with its part of the mean square motion of the watched points, mean removed."""
    states = np.concatenate([motion.qpos[clip] - rest, motion.qvel[clip]], axis=1)
    amplitudes = states @ modes.left.conj()
    amplitudes = amplitudes - amplitudes.mean(0)
    power = (np.abs(amplitudes) ** 2).mean(0) * (np.abs(modes.shapes) ** 2).sum((1, 2))
    power = power / power.sum()
    return tuple(
        TrueMode(float(f), float(rate), float(share))
        for f, rate, share in zip(modes.frequencies_hz, modes.decay_rates, power, strict=True)
    )


def _mass_profile(physics: Physics, states: Float64[np.ndarray, "C n"]) -> Float64[np.ndarray, " C"]:
    """Effective mass seen at the first watched point over its mean along the clip, for one degree of freedom."""
    if physics.num_joints != 1:
        return np.zeros(0)
    masses = []
    for qpos in states:
        per_joint = np.square(physics.point_jacobian(qpos)[0, :, 0]).sum()
        masses.append(float(physics.mass_matrix(qpos)[0, 0]) / per_joint)
    return np.array(masses) / np.mean(masses)


# ---- pushes
def _pushes(
    physics: Physics,
    rest: Float64[np.ndarray, " n"],
    motion: Motion,
    seed: int,
    size: tuple[int, int],
    fronts: Float64[np.ndarray, " P"],
) -> tuple[TruePush, ...]:
    """Six pushes at different points, each as strong as it takes to move the thing about as far as in the clip."""
    rng = np.random.default_rng([seed, 51])
    built, mobility = physics.scene, _mobility(physics, rest)
    rest_points = physics.simulate(rest, 0 * rest, 0.0).points[0]
    reach = float(np.linalg.norm(motion.points - rest_points, axis=-1).max())
    if built.rests_anywhere:
        reach = float(np.ptp(motion.points, axis=0).max()) / 2
    ease = np.array([np.linalg.eigvalsh(m)[-1] for m in mobility])
    able = [k for k in range(len(built.points)) if ease[k] > 0.02 * ease.max()]
    order = [able[k % len(able)] for k in rng.permutation(max(NUM_PUSHES, len(able)))][:NUM_PUSHES]
    result = []
    for index in order:
        _, axes = np.linalg.eigh(mobility[index])
        turn = float(rng.uniform(-0.7, 0.7))
        easy = axes[:, -1] * float(rng.choice([-1, 1]))
        direction = np.array(
            [math.cos(turn) * easy[0] - math.sin(turn) * easy[1], math.sin(turn) * easy[0] + math.cos(turn) * easy[1]]
        )
        start = round(rng.uniform(0.1, 0.2) * RECORD_RATE) / RECORD_RATE
        end = start + round(rng.uniform(0.1, 0.4) * RECORD_RATE) / RECORD_RATE
        wanted = float(rng.uniform(0.35, 0.8)) * reach
        size_n = wanted / (float(direction @ mobility[index] @ direction) * (end - start) * 0.2)
        for _ in range(5):
            force = (float(size_n * direction[0]), float(size_n * direction[1]))
            answer = physics.simulate(
                rest, 0 * rest, PUSH_SECONDS, forces=[PointForce(built.points[index], force, start, end)]
            )
            ratio = wanted / float(np.linalg.norm(answer.points - rest_points, axis=-1).max())
            if abs(ratio - 1.0) < 0.1:
                break
            size_n *= min(max(ratio, 0.3), 3.0)
        per_newton = 1.0 / (physics.mass_kg * built.unit_m)
        pixels = physics.pixels(answer.points, size, fronts)
        result.append(
            TruePush(
                point=built.points[index],
                pixel=(float(pixels[0, index, 0]), float(pixels[0, index, 1])),
                force=(force[0] * per_newton, -force[1] * per_newton),
                force_N=force,
                start_s=start,
                end_s=end,
                answer_times_s=answer.times_s,
                answers=pixels,
                index=index,
            )
        )
    return tuple(result)


def _mobility(physics: Physics, rest: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "P 2 2"]:
    """Acceleration of every watched point per force on itself at rest, 1/kg."""
    jacobian, mass = physics.point_jacobian(rest), physics.mass_matrix(rest)
    return np.einsum("pan,nm,pbm->pab", jacobian, np.linalg.inv(mass), jacobian)


def _background(moving: np.ndarray, seed: int, count: int = 40, margin: int = 7) -> Float64[np.ndarray, "B 2"]:
    """Centers of random pixels at least `margin` pixels away from everything that moves."""
    from scipy.ndimage import binary_dilation

    rows, columns = np.nonzero(np.logical_not(binary_dilation(moving, iterations=margin)))
    rng = np.random.default_rng([seed, 61])
    chosen = rng.choice(len(rows), size=min(count, len(rows)), replace=False)
    return np.stack([columns[chosen] + 0.5, rows[chosen] + 0.5], axis=1).astype(float)


# ---- files
def _write_log(path: Path, truth: Truth) -> None:
    """The log as a person's logger writes it: from just before to just after the clip."""
    kept = truth.input_times_s <= truth.clip_seconds + 0.05
    rows = [",".join(("time_s", *truth.input_names))]
    for time_s, values in zip(truth.input_times_s[kept], truth.inputs[kept], strict=True):
        rows.append(",".join([f"{time_s:.4f}", *(f"{value:.6g}" for value in values)]))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write_contact_sheet(path: Path, frames: list[np.ndarray], truth: Truth) -> None:
    """Eight frames of the clip with the watched points drawn in."""
    from PIL import Image, ImageDraw

    tiles = []
    for k in np.linspace(0, len(frames) - 1, 8).astype(int):
        tile = Image.fromarray(frames[k])
        draw = ImageDraw.Draw(tile)
        for x, y in truth.paths(np.array([k / truth.frames_per_second]))[0]:
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), outline="white", fill="black")
        tiles.append(np.asarray(tile))
    sheet = np.concatenate([np.concatenate(tiles[:4], 1), np.concatenate(tiles[4:], 1)], 0)
    Image.fromarray(sheet).save(path)
