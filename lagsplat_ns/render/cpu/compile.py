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

#: Reassociation lets LLVM vectorize sums; NaN and infinity keep their meaning, so that bad input is culled, not
# undefined.
SAFE_MATH = {"reassoc", "contract", "arcp", "nsz", "afn"}

_kernels: list[Any] = []
_ready = threading.Event()
_ready_lock = threading.Lock()


def kernel(fastmath: bool | set[str]) -> Callable[[Callable], Any]:
    """A decorator that compiles a function without the GIL and caches the machine code on disk where that is possible.

    fastmath: True for all of LLVM's liberties (never where a float decides an index), or a set of flags.
    """

    def decorate(function: Callable) -> Any:
        function = inspect.unwrap(function)  # type checkers wrap functions, and Numba needs the plain one
        options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy", "boundscheck": False}
        try:
            dispatcher = numba.njit(cache=True, **options)(function)
            # A kernel depends on the files of the functions it inlines too: a change in any of them ends all cache
            # entries.
            dispatcher._cache._cache_file._source_stamp = _source_stamp()
        except RuntimeError:  # no folder that Numba may write to
            warnings.warn(
                "Compiled kernels are kept in a folder that can be written, but neither the package's "
                "`__pycache__`, the "
                "user's cache folder nor NUMBA_CACHE_DIR can.\n  They are compiled again in every process "
                "(about 20 s): "
                "set the environment variable NUMBA_CACHE_DIR to a folder that can be written.",
                stacklevel=3,
            )
            dispatcher = numba.njit(**options)(function)
        _kernels.append(dispatcher)
        return dispatcher

    return decorate


def device_function(function: Callable) -> Any:
    """A function that is inlined into kernels and takes over their options."""
    return numba.njit(inline="always", error_model="numpy")(inspect.unwrap(function))


def _source_stamp() -> tuple[tuple[str, float, int], ...]:
    """What changes when any file of this package changes."""
    stats = [(path.name, path.stat()) for path in sorted(Path(__file__).parent.glob("*.py"))]
    return tuple((name, stat.st_mtime, stat.st_size) for name, stat in stats)


class _CompileMessage(event.Listener):
    """Says once that kernels are being compiled, and only if they really are (not when they come from the cache)."""

    def __init__(self) -> None:
        self.started_s: float | None = None

    def on_start(self, event: Any) -> None:
        if self.started_s is None and event.data["dispatcher"] in _kernels:
            self.started_s = time.perf_counter()
            _say("Compiling the CPU renderer: once on this machine, about 20 s ...")

    def on_end(self, event: Any) -> None:
        pass

    def finish(self) -> None:
        if self.started_s is not None:
            _say(f"The CPU renderer is compiled ({time.perf_counter() - self.started_s:.0f} s).")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare_once(run_all_kernels: Callable[[], None]) -> None:
    """Calls `run_all_kernels` (a tiny rendering that compiles or loads everything) in the first call of a process."""
    if _ready.is_set():
        return
    with _ready_lock:
        if _ready.is_set():
            return
        with event.install_listener("numba:compile", _CompileMessage()) as message:
            run_all_kernels()
        message.finish()
        _ready.set()


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
