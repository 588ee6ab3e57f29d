"""The whole benchmark: clips, trainings, scores and baselines; what is done is kept and not done again."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from lagsplat_ns.bench.baselines import BASELINES, PredictorSimulator
from lagsplat_ns.bench.scoring import Score, score
from lagsplat_ns.bench.training import train
from lagsplat_ns.bench.truth import Truth
from lagsplat_ns.bench.variants import VARIANTS
from lagsplat_ns.simulator import Simulator

__all__ = ["Result", "Run", "ensure_clip", "run_one"]


@dataclass(frozen=True)
class Run:
    """One training of the benchmark: a scene, its seed, and a way to train."""

    scene: str
    seed: int
    variant: str = "default"

    def clip_folder(self, output: Path) -> Path:
        return output / "clips" / self.scene / f"seed{self.seed}"

    def folder(self, output: Path) -> Path:
        return output / "runs" / self.variant.replace(" ", "_") / self.scene / f"seed{self.seed}"


Result = dict[str, Any]
"""What result.json holds: scene, seed, variant, kind, num_joints, figures, details, failures, baselines, report."""


def ensure_clip(run: Run, output: Path) -> Path:
    """The clip of a run, written where it is missing; returns the video file."""
    from lagsplat_ns.bench.writer import CLIP_NAME, write_clip

    folder = run.clip_folder(output)
    if not (folder / "truth.json").is_file():
        write_clip(run.scene, run.seed, folder)
    return folder / CLIP_NAME


def run_one(run: Run, output: Path, console: Console, *, with_baselines: bool = True) -> Result:
    """Trains and scores one run, or reads its result where there is one.

    What goes wrong is part of the result ("error"), so that other runs go on; such a run is tried again next time.
    """
    folder = run.folder(output)
    stored = folder / "result.json"
    if stored.is_file():
        return json.loads(stored.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    result: Result = {"scene": run.scene, "seed": run.seed, "variant": run.variant, "figures": {}}
    try:
        _fill(result, run, output, console, with_baselines)
    except Exception as error:  # any failure of a training or a scene is a result of the benchmark
        result["error"] = f"{type(error).__name__}: {error}"
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        console.print(f"  failed: {result['error']}", style="red", markup=False, highlight=False)
        return result
    (folder / "error.txt").unlink(missing_ok=True)
    stored.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _fill(result: Result, run: Run, output: Path, console: Console, with_baselines: bool) -> None:
    folder = run.folder(output)
    clip = ensure_clip(run, output)
    truth = Truth.load(clip.parent)
    result.update(kind=truth.kind, num_joints=truth.num_joints, rests_anywhere=truth.rests_anywhere)
    training = train(clip.resolve(), folder.resolve(), VARIANTS[run.variant])
    sim = Simulator.load(training.config)
    console.print(f"  trained in {training.seconds:.0f} s; scoring")
    begun = time.perf_counter()
    own = score(sim, truth)
    own.put("training_seconds", training.seconds)
    own.put("latent_dim", float(sim.scene.paths[0].q.shape[-1]))
    series = {"lagsplat": own.series}
    result.update(_facts(own), report=training.report, scoring_seconds=time.perf_counter() - begun, baselines={})
    if with_baselines:
        for name, fit in BASELINES.items():
            result["baselines"][name], series[name] = _baseline(sim, truth, name, fit, run.seed)
    stored: dict[str, Any] = {f"{who}|{what}": x for who, each in series.items() for what, x in each.items()}
    np.savez_compressed(folder / "series.npz", **stored)
    own.attempt("plots", lambda: _plots(sim, truth, clip, series, result, folder))
    result["failures"] = own.failures


def _facts(own: Score) -> dict[str, Any]:
    return {"figures": own.figures, "details": own.details, "failures": own.failures}


def _baseline(sim: Simulator, truth: Truth, name: str, fit: Any, seed: int) -> tuple[dict[str, Any], dict]:
    """The score of one predictor in the place of the mechanism; a fit that fails is told."""
    begun = time.perf_counter()
    try:
        with torch.enable_grad():
            predictor = fit(sim, truth, seed)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        return {"figures": {}, "failures": {"fit": f"{type(error).__name__}: {error}"}}, {}
    seconds = time.perf_counter() - begun
    own = score(PredictorSimulator(sim, predictor), truth, has_mechanism=False, moves=predictor is not None)
    own.put("fit_seconds", seconds)
    return _facts(own), own.series


def _plots(sim: Simulator, truth: Truth, clip: Path, series: dict[str, dict], result: Result, folder: Path) -> None:
    from lagsplat_ns.bench.plots import contact_sheet, plot_energy, plot_forecast, plot_pushes

    plot_forecast(truth, series, result, folder / "forecast.png")
    plot_pushes(truth, series, result, folder / "pushes.png")
    plot_energy(series, folder / "energy.png")
    contact_sheet(sim, truth, clip, folder / "pictures.png")


def all_runs(scenes: Sequence[str], seeds: Sequence[int], variants: Sequence[str] = ("default",)) -> list[Run]:
    """Every scene with every seed and variant, the first seed of all scenes first."""
    return [Run(scene, seed, variant) for variant in variants for seed in seeds for scene in scenes]
