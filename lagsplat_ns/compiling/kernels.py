"""How kernels are compiled: options, the cache on disk, and the one-time message about compiling."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import event

__all__ = ["SAFE_MATH", "KernelGroup", "device_function", "untraced"]

#: Reassociation lets LLVM vectorize sums; NaN and infinity keep their meaning, so that bad input is culled, not
# undefined.
SAFE_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}


class KernelGroup:
    """Kernels that are compiled together, once on a machine, and announced together.

    title: what they are, as in "Compiling the CPU renderer"; folder: where their source files lie (a change in any of
    them ends all cache entries, since kernels inline functions of other files); about_s: how long compiling takes.
    """

    def __init__(self, title: str, folder: Path, about_s: int) -> None:
        self.title, self.folder, self.about_s = title, folder, about_s
        self._kernels: list[Any] = []
        self._ready = threading.Event()
        self._lock = threading.Lock()

    def __contains__(self, dispatcher: object) -> bool:
        return any(dispatcher is known for known in self._kernels)

    def kernel(self, fastmath: bool | set[str]) -> Callable[[Callable], Any]:
        """A decorator that compiles a function without the GIL and keeps the machine code on disk where it can.

        fastmath: True for all of LLVM's liberties (never where a float decides an index), or a set of flags.
        """

        def decorate(function: Callable) -> Any:
            function = inspect.unwrap(function)  # type checkers wrap functions, and Numba needs the plain one
            options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy", "boundscheck": False}
            try:
                dispatcher = numba.njit(cache=True, **options)(function)
                dispatcher._cache._cache_file._source_stamp = self._source_stamp()
            except RuntimeError:  # no folder that Numba may write to
                warnings.warn(
                    "Compiled kernels are kept in a folder that can be written, but neither the package's "
                    "`__pycache__`, the "
                    "user's cache folder nor NUMBA_CACHE_DIR can.\n  They are compiled again in every process "
                    f"(about {self.about_s} s): "
                    "set the environment variable NUMBA_CACHE_DIR to a folder that can be written.",
                    stacklevel=3,
                )
                dispatcher = numba.njit(**options)(function)
            self._kernels.append(dispatcher)
            return dispatcher

        return decorate

    def _source_stamp(self) -> tuple[tuple[str, float, int], ...]:
        """What changes when any file of the group's folder or of this one changes."""
        paths = [path for folder in (Path(__file__).parent, self.folder) for path in sorted(folder.glob("*.py"))]
        stats = [(path.name, path.stat()) for path in paths]
        return tuple((name, stat.st_mtime, stat.st_size) for name, stat in stats)

    def prepare_once(self, run_all_kernels: Callable[[], None]) -> None:
        """Calls `run_all_kernels` (tiny work that compiles or loads everything) in the first call of a process."""
        if self._ready.is_set():
            return
        with self._lock:
            if self._ready.is_set():
                return
            with event.install_listener("numba:compile", _CompileMessage(self)) as message:
                run_all_kernels()
            message.finish()
            self._ready.set()


def device_function(function: Callable) -> Any:
    """A function that is inlined into kernels and takes over their options."""
    return numba.njit(inline="always", error_model="numpy")(inspect.unwrap(function))


class _CompileMessage(event.Listener):
    """Says once that kernels are being compiled, and only if they really are (not when they come from the cache)."""

    def __init__(self, group: KernelGroup) -> None:
        self.group = group
        self.started_s: float | None = None

    def on_start(self, event: Any) -> None:
        if self.started_s is None and event.data["dispatcher"] in self.group:
            self.started_s = time.perf_counter()
            _say(f"Compiling {self.group.title}: once on this machine, about {self.group.about_s} s ...")

    def on_end(self, event: Any) -> None:
        pass

    def finish(self) -> None:
        if self.started_s is not None:
            title = self.group.title
            _say(f"{title[:1].upper()}{title[1:]} is compiled ({time.perf_counter() - self.started_s:.0f} s).")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """A block in which no trace function runs.

    nerfstudio's viewer interrupts a rendering by raising from `sys.settrace`'s function at any line of Python, and
    tracing slows compilation many times; renders here are short enough to finish.
    """
    trace = sys.gettrace()
    if trace is None:
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)
