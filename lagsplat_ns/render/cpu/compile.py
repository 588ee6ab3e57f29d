"""The kernels of the CPU renderer as one group that is compiled and announced together."""

from __future__ import annotations

from pathlib import Path

from lagsplat_ns.compiling.kernels import SAFE_MATH, KernelGroup, device_function, untraced

__all__ = ["SAFE_MATH", "device_function", "kernel", "prepare_once", "untraced"]

_RENDERER = KernelGroup("the CPU renderer", Path(__file__).parent, about_s=20)
kernel, prepare_once = _RENDERER.kernel, _RENDERER.prepare_once
