"""`lagsplat bench --dynamics`: every kind of work is timed, and kernels are worth having."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from lagsplat_ns.cli.bench_dynamics import bench_dynamics


def test_steps_and_sensitivities_are_timed_beside_torch(tmp_path: Path) -> None:
    out = io.StringIO()
    found = bench_dynamics((2,), 5, 1, tmp_path / "timings.json", Console(file=out, width=120))
    assert [(t.work, t.kernel_threads) for t in found] == [
        ("step of 1/60 s", 1),
        ("sensitivities", 1),
        ("sensitivities", 2),
    ]
    assert all(t.latent_dim == 2 and t.ratio > 10 for t in found)
    assert found[0].kernel_ms < 2.0
    stored = json.loads((tmp_path / "timings.json").read_text())["timings"]
    assert [row["kernel_ms"] for row in stored] == [t.kernel_ms for t in found]
    assert "sensitivities" in out.getvalue()
