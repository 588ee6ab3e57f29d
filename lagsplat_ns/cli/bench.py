"""`lagsplat bench`: filmed systems with known physics against the truth, and the package's own speed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Bench:
    """Trains on clips of systems with exactly known physics and compares forecasts and pushes with the truth."""

    scenes: tuple[str, ...] = ()
    """scenes by name, such as pendulum rope; default: all"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """each seed draws its own masses, lengths, stiffness, damping, colors and start"""
    output: Path = Path("lagsplat-bench")
    """folder for clips, trainings and results; runs that it already holds are not done again"""
    ablation: bool = False
    """also train in the other ways (the paper's decoder and so on), for one table of them all"""
    variants: tuple[str, ...] = ()
    """ways to train by name, quoted where they have spaces; default: default, or all with --ablation"""
    classes: bool = False
    """also one row per class of systems"""
    baselines: bool = True
    """also score predictors without physics on the same pictures and coordinates"""
    write_clips: Path | None = None
    """only write clips and truth of the chosen scenes and seeds into this folder"""
    renderer: bool = False
    """instead: the CPU rasterizer beside a vectorized torch path, in one run"""
    dynamics: bool = False
    """instead: steps and rollouts of the dynamics beside the same in torch, in one run"""

    def main(self) -> None:
        """Runs what was asked for."""
        if self.renderer:
            from lagsplat_ns.cli.bench_renderer import main as bench_renderer

            bench_renderer()
            return
        if self.dynamics:
            from lagsplat_ns.cli.bench_dynamics import main as bench_dynamics

            bench_dynamics()
            return
        scenes = self._scenes()
        for option, folder in (("--output", self.output), ("--write-clips", self.write_clips)):
            if folder is not None and folder.exists() and not folder.is_dir():
                raise ValueError(f"`{option}` must be a folder, but {folder} is a file.\n  Pass another path.")
        if self.write_clips is not None:
            self._write_clips(scenes, self.write_clips)
        else:
            self._run(scenes)

    def _scenes(self) -> list[str]:
        from lagsplat_ns.bench.scene import scene_names

        known = scene_names()
        named = [name for item in self.scenes for name in item.split(",") if name]
        wanted = list(dict.fromkeys(named)) or list(known)
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"`--scenes` must name scenes of the benchmark, but has {name!r}.\n  It knows {', '.join(known)}."
                )
        if not self.seeds or min(self.seeds) < 0:
            raise ValueError(f"`--seeds` must be numbers from 0 on, but is {list(self.seeds)}.\n  Pass --seeds 0 1 2.")
        return wanted

    def _write_clips(self, scenes: list[str], folder: Path) -> None:
        from rich.console import Console

        from lagsplat_ns.bench.opengl import load_mujoco
        from lagsplat_ns.bench.writer import write_clip

        console = Console()
        load_mujoco(for_pictures=True)
        for seed in dict.fromkeys(self.seeds):
            for name in scenes:
                place = folder / name / f"seed{seed}"
                write_clip(name, seed, place)
                console.print(f"{place}", highlight=False, soft_wrap=True)

    def _run(self, scenes: list[str]) -> None:
        import torch
        from rich.console import Console

        from lagsplat_ns.bench.run import all_runs, run_one
        from lagsplat_ns.bench.tables import ablation_table, baseline_table, class_table, result_table, summary
        from lagsplat_ns.bench.variants import VARIANTS

        variants = list(dict.fromkeys(self.variants)) or (list(VARIANTS) if self.ablation else ["default"])
        for name in variants:
            if name not in VARIANTS:
                raise ValueError(
                    f"`--variants` must name ways to train, but has {name!r}.\n  It knows {', '.join(VARIANTS)}."
                )
        torch.set_num_threads(1)  # small tensors: threads would only wait for each other
        console = Console()
        results = []
        runs = all_runs(scenes, tuple(dict.fromkeys(self.seeds)), variants)
        self.output.mkdir(parents=True, exist_ok=True)
        for k, run in enumerate(runs):
            console.print(f"{k + 1}/{len(runs)} {run.scene}, seed {run.seed}, {run.variant}", highlight=False)
            with_baselines = self.baselines and run.variant == "default"
            results.append(run_one(run, self.output, console, with_baselines=with_baselines))
            path = self.output / "summary.json"
            path.write_text(json.dumps({**summary(results), "results": results}, indent=1) + "\n", encoding="utf-8")
        wide = Console(width=max(console.width, 165))
        for variant in variants:
            wide.print(f"[bold]{variant}[/]")
            wide.print(result_table([r for r in results if r["variant"] == variant]))
        if self.classes:
            wide.print(class_table([r for r in results if r["variant"] == variants[0]]))
        if len(variants) > 1:
            wide.print(ablation_table(results))
        table = baseline_table(results)
        if table is not None:
            wide.print(table)
        facts = summary(results)
        total = facts["targets_met"] + len(facts["targets_missed"])
        for failure in facts["failed"]:
            console.print(failure.splitlines()[0], style="red", markup=False, highlight=False, soft_wrap=True)
        console.print(f"{facts['targets_met']} of {total} targets met, {len(facts['failed'])} runs failed.")
        console.print(f"All figures: {self.output / 'summary.json'}", highlight=False, soft_wrap=True)
