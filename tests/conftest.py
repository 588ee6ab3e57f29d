"""Settings shared by every test."""

from __future__ import annotations

import os

# One thread for every numeric library: small solves run many times slower when two threads fight over busy cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same random numbers for a test whether it runs alone or after others."""
    torch.manual_seed(0)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite, none besides this one for a part of it, which they would only delay."""
    is_whole = config.args == config.getini("testpaths") and not config.option.keyword
    return min(2, os.cpu_count() or 1) if is_whole else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips `device` tests with a reason where there is no CUDA device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch.cuda.is_available() is False here")
    for item in items:
        if "device" in item.keywords:
            item.add_marker(skip)
