"""What is known about a filmed scene, stored beside its clip: paths, energy, modes, and answers to six pushes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from scipy.interpolate import CubicSpline

__all__ = ["TrueMode", "TruePush", "Truth"]


@dataclass(frozen=True)
class TrueMode:
    """A mode of the motion around rest; share: its part of the mean square motion of the watched points in the clip."""

    frequency_hz: float
    decay_rate: float
    """1/s"""
    share: float


@dataclass(frozen=True)
class TruePush:
    """A constant force on a watched point from rest, without inputs, and the true answer of all watched points.

    pixel: the point at rest; force: (x right, y down) in picture units (unit mass, a picture's larger side is two units
    long); force_N: the same in newtons; answers [K, P, 2]: pixels at `answer_times_s`.
    """

    point: str
    pixel: tuple[float, float]
    force: tuple[float, float]
    force_N: tuple[float, float]
    start_s: float
    end_s: float
    answer_times_s: Float64[np.ndarray, " K"]
    answers: Float64[np.ndarray, "K P 2"]
    index: int
    """of the pushed point among the watched ones"""

    def responses(self, times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T P 2"]:
        """True paths of all watched points, pixels."""
        return CubicSpline(self.answer_times_s, self.answers)(times_s)

    def response(self, times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T 2"]:
        """True path of the pushed point, pixels: the form that `evaluation.evaluate_pushes` takes."""
        return self.responses(times_s)[:, self.index]


@dataclass(frozen=True)
class Truth:
    """Everything known about one clip. Times in seconds since its first frame, places in pixels of its pictures.

    times_s [K], qpos, qvel [K, n] (SI units of the joints), points [K, P, 2] and energy [K] (over that of the first
    frame, zero at rest) cover the clip and as long again after it. rest_points [P, 2]. inputs [L, m] at
    input_times_s [L]. inertia [K]: mass profile of a thing with one degree of freedom, seen from the first watched
    point, over its mean (empty for others). background [B, 2]: pixels that never show the thing at rest.
    """

    scene: str
    kind: str
    seed: int
    parameters: dict
    size: tuple[int, int]
    frames_per_second: int
    clip_seconds: float
    unit_m: float
    mass_kg: float
    num_joints: int
    rests_anywhere: bool
    point_names: tuple[str, ...]
    modes: tuple[TrueMode, ...]
    input_names: tuple[str, ...]
    times_s: Float64[np.ndarray, " K"]
    qpos: Float64[np.ndarray, "K n"]
    qvel: Float64[np.ndarray, "K n"]
    points: Float64[np.ndarray, "K P 2"]
    energy: Float64[np.ndarray, " K"]
    rest_points: Float64[np.ndarray, "P 2"]
    input_times_s: Float64[np.ndarray, " L"]
    inputs: Float64[np.ndarray, "L m"]
    inertia: Float64[np.ndarray, " C"]
    background: Float64[np.ndarray, "B 2"]
    pushes: tuple[TruePush, ...]
    point_movers: tuple[int, ...] = ()
    """which of several independent things every watched point belongs to; empty for one thing"""

    def mover(self, push: TruePush) -> int:
        """Which of several independent things a push acts on. How their masses compare, no clip can tell."""
        return self.point_movers[push.index] if self.point_movers else 0

    @property
    def is_forced(self) -> bool:
        return bool(self.input_names)

    @property
    def excited_modes(self) -> list[TrueMode]:
        """Modes that make at least 2 % of the mean square motion in the clip, the largest first."""
        return sorted((mode for mode in self.modes if mode.share >= 0.02), key=lambda mode: -mode.share)

    @cached_property
    def _paths(self) -> CubicSpline:
        return CubicSpline(self.times_s, self.points)

    def paths(self, times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T P 2"]:
        """True paths of all watched points in the clip and after it, pixels."""
        return self._paths(times_s)

    def velocities(self, times_s: Float64[np.ndarray, " T"]) -> Float64[np.ndarray, "T P 2"]:
        """True velocities of all watched points, pixels per second."""
        return self._paths(times_s, 1)

    def inputs_at(self, time_s: float) -> dict[str, float]:
        """Values of the measured inputs by name."""
        return {
            name: float(np.interp(time_s, self.input_times_s, column))
            for name, column in zip(self.input_names, self.inputs.T, strict=True)
        }

    # ---- files
    def save(self, folder: Path) -> None:
        """Writes truth.json (facts) and truth.npz (series)."""
        facts, series = {}, {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                series[name] = value
        for name in ("scene", "kind", "seed", "parameters", "size", "frames_per_second", "clip_seconds", "unit_m"):
            facts[name] = getattr(self, name)
        for name in ("mass_kg", "num_joints", "rests_anywhere", "point_names", "input_names", "point_movers"):
            facts[name] = getattr(self, name)
        facts["modes"] = [asdict(mode) for mode in self.modes]
        facts["pushes"] = []
        for k, push in enumerate(self.pushes):
            series[f"push_{k}_times_s"], series[f"push_{k}_answers"] = push.answer_times_s, push.answers
            names = ("point", "pixel", "force", "force_N", "start_s", "end_s", "index")
            facts["pushes"].append({name: getattr(push, name) for name in names})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "truth.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        np.savez_compressed(folder / "truth.npz", **series)

    @classmethod
    def load(cls, folder: Path) -> Truth:
        """The truth that `save` wrote into a folder.

        Raises: FileNotFoundError if the folder holds none.
        """
        file = folder / "truth.json"
        if not file.is_file():
            raise FileNotFoundError(
                f"A scene's folder must hold truth.json, but {folder} does not.\n"
                "  Write it with `lagsplat bench --write-clips FOLDER`."
            )
        facts = json.loads(file.read_text(encoding="utf-8"))
        with np.load(folder / "truth.npz") as stored:
            series = {name: stored[name] for name in stored.files}
        pushes = []
        for k, push in enumerate(facts.pop("pushes")):
            for name in ("pixel", "force", "force_N"):
                push[name] = tuple(push[name])
            pushes.append(
                TruePush(
                    **push, answer_times_s=series.pop(f"push_{k}_times_s"), answers=series.pop(f"push_{k}_answers")
                )
            )
        facts["modes"] = tuple(TrueMode(**mode) for mode in facts["modes"])
        for name in ("point_names", "input_names", "size", "point_movers"):
            facts[name] = tuple(facts.get(name, ()))
        return cls(**facts, **series, pushes=tuple(pushes))
