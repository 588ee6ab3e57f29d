"""Compiling kernels: said once on a machine, in the words of their group, and again where a source file changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from pathlib import Path
from lagsplat_ns.compiling.kernels import KernelGroup

group = KernelGroup("the doubling", Path(__file__).parent, about_s=3)


@group.kernel(fastmath=False)
def doubled(x):
    return 2 * x


@group.kernel(fastmath=False)
def tripled(x):
    return 3 * x


group.prepare_once(lambda: (doubled(7), tripled(7)))
group.prepare_once(lambda: doubled(7.0))  # prepared already: not run
assert (doubled(21), tripled(2)) == (42, 6)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A file that compiles two kernels of one group."""
    path = tmp_path / "group" / "doubling.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    (path.parent / "other.py").touch()
    return path


def said_by(module: Path) -> list[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(module.parents[1] / "cache")}
    done = subprocess.run(
        [sys.executable, str(module)], check=True, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.stderr.splitlines()


def test_compiling_is_announced_once_on_a_machine_and_again_after_a_change(module: Path) -> None:
    first, last = said_by(module)
    assert first == "Compiling the doubling: once on this machine, about 3 s ..."
    assert last.startswith("The doubling is compiled (")
    assert said_by(module) == []
    (module.parent / "other.py").write_text("# a file whose functions kernels may inline\n")
    assert len(said_by(module)) == 2
