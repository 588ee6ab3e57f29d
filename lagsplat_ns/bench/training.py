"""Training on a clip the way a person does it: `ns-train lagsplat`, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Training", "TrainingError", "train"]


class TrainingError(RuntimeError):
    """A training that ended without a result."""


@dataclass(frozen=True)
class Training:
    """A finished training: its config.yml, seconds of the whole command, and the report that it wrote."""

    config: Path
    seconds: float
    report: dict


def train(clip: Path, folder: Path, options: tuple[str, ...] = (), *, limit_s: float = 1800.0) -> Training:
    """Runs `ns-train lagsplat --data CLIP` with further options; everything it prints goes to training.log.

    Raises: TrainingError with the end of the log if it fails or takes longer than `limit_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "training.log"
    command = [sys.executable, "-m", "nerfstudio.scripts.train", "lagsplat", "--data", str(clip)]
    command += ["--output-dir", str(folder), "--experiment-name", "training", "--timestamp", "run"]
    command += ["--vis", "tensorboard", *options]
    begun = time.perf_counter()
    with log.open("w", encoding="utf-8") as stream:
        try:
            code = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, timeout=limit_s).returncode
        except subprocess.TimeoutExpired as error:
            raise TrainingError(
                f"A training must end within {limit_s:.0f} s, but did not. Its log is {log}.\n"
                "  Give it more time, or a smaller clip."
            ) from error
    seconds = time.perf_counter() - begun
    base = folder / "training" / "lagsplat" / "run"
    if code != 0 or not (base / "config.yml").is_file():
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        raise TrainingError(f"ns-train ended with code {code}; the end of {log}:\n" + "\n".join(lines[-12:]))
    report = base / "report.json"
    return Training(
        base / "config.yml", seconds, json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
    )
