"""The kernels of the dynamics as one group that is compiled and announced together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from lagsplat_ns.compiling.kernels import KernelGroup

__all__ = ["MATH", "device", "kernel", "prepare_once"]

MATH = {"contract", "reassoc", "nsz", "arcp"}
_DYNAMICS = KernelGroup("the solver of the dynamics", Path(__file__).parent, about_s=15)
kernel, prepare_once = _DYNAMICS.kernel, _DYNAMICS.prepare_once


def device(function: Callable) -> Any:
    """A function that kernels call; LLVM decides whether to inline it."""
    return numba.njit(nogil=True, error_model="numpy", fastmath=MATH, boundscheck=False)(inspect.unwrap(function))
