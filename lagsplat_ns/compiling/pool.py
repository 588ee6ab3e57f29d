"""A small pool of persistent threads that share one kernel call.

Kernels draw tickets (numbers of tiles or of blocks of Gaussians) from a shared counter until none is left, and release
the GIL meanwhile. The calling thread works too and waits only for helpers that have begun, so a helper that gets no
core (or is missing, as after a fork) costs nothing. Which thread draws a ticket has no influence on its result.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np

from lagsplat_ns.compiling.atomics import atomic_load
from lagsplat_ns.compiling.kernels import KernelGroup

MAX_DEFAULT_THREADS = 8
THREADS_VARIABLE = "LAGSPLAT_RENDER_THREADS"


# How often a thread looks before it sleeps: about 0.3 ms. Waking a sleeping thread can take as long as a whole stage.
_NUM_LOOKS = 300_000


_waiting = KernelGroup("the pool of threads", Path(__file__).parent, about_s=1)


@_waiting.kernel(fastmath=False)
def wait_until_changed(flags, index, value):
    """Looks at flags[index] (int64) until it differs from `value` or patience ends, without the GIL."""
    for _ in range(_NUM_LOOKS):  # noqa: SIM110
        if atomic_load(flags, index) != value:
            return True
    return False


class _Job:
    """One kernel call offered to helpers: `permits` holds the numbers of helpers that may still begin."""

    def __init__(self, function: Callable[..., object], arguments: tuple, num_helpers: int) -> None:
        self.function = function
        self.arguments = arguments
        self.permits = deque(range(num_helpers))
        self.is_finished = np.zeros(num_helpers, np.int64)  # by number of helper
        self.results: SimpleQueue[BaseException | None] = SimpleQueue()

    def help(self) -> None:
        """Does a helper's part, unless the caller has finished without it."""
        try:
            number = self.permits.popleft()
        except IndexError:
            return
        error = None
        try:
            self.function(*self.arguments)
        except BaseException as raised:  # handed to the caller, who raises it
            error = raised
        self.results.put(error)
        self.is_finished[number] = 1

    def withdraw(self) -> None:
        """Lets no more helpers begin, waits for those that have, and raises what they raised."""
        pending = set(range(self.is_finished.shape[0]))
        with contextlib.suppress(IndexError):
            while True:
                pending.remove(self.permits.pop())
        for number in pending:
            wait_until_changed(self.is_finished, number, 0)
        for error in [self.results.get() for _ in pending]:
            if error is not None:
                raise error


class ThreadPool:
    """Daemon threads, started when first needed, that serve any number of calling threads."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._num_offered = np.zeros(1, np.int64)  # changes with every job
        self._num_started = 0
        self._lock = threading.Lock()

    def run(self, function: Callable[..., object], num_tickets: int, num_threads: int, *arguments: object) -> None:
        """Runs `function(counter, *arguments)` in up to `num_threads` threads; the counter [1] int64 starts at 0."""
        if num_tickets <= 0:
            return
        call = (np.zeros(1, np.int64), *arguments)
        num_helpers = min(num_threads, num_tickets) - 1
        if num_helpers <= 0:
            function(*call)
            return
        self._start(num_helpers)
        job = _Job(function, call, num_helpers)
        for _ in range(num_helpers):
            self._jobs.put(job)
        self._num_offered[0] += 1
        try:
            function(*call)
        finally:
            job.withdraw()

    def _start(self, num_helpers: int) -> None:
        if self._num_started >= num_helpers:
            return
        with self._lock:
            while self._num_started < num_helpers:
                self._num_started += 1
                name = f"lagsplat-kernel-{self._num_started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            seen = int(self._num_offered[0])
            try:
                job = self._jobs.get_nowait()
            except Empty:
                if wait_until_changed(self._num_offered, 0, seen):
                    continue
                job = self._jobs.get()
            job.help()
            del job  # its arrays must not live until the next job comes


_pool = ThreadPool()
_num_threads: int | None = None


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _pool
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def default_num_threads() -> int:
    """The environment variable LAGSPLAT_RENDER_THREADS, or one thread per core that this process may use, at most 8.

    Raises: ValueError if the variable is not a positive whole number.
    """
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
        return min(num_cores, MAX_DEFAULT_THREADS)
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(
            f"The environment variable {THREADS_VARIABLE} must be a positive whole number, but is {text!r}.\n"
            f"  Set it to a number of threads, or unset it for one thread per core."
        )
    return int(text)


def get_num_threads() -> int:
    """How many threads one call of a kernel may use, such as one rendering."""
    global _num_threads
    if _num_threads is None:
        _num_threads = default_num_threads()
    return _num_threads


def set_num_threads(num_threads: int | None) -> None:
    """Sets how many threads one call may use; None returns to the default. Results do not depend on it.

    Raises: ValueError for less than one thread.
    """
    global _num_threads
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"`num_threads` must be at least 1, but is {num_threads}.\n  Pass 1 to work in one thread.")
    _num_threads = num_threads


def run(function: Callable[..., object], num_tickets: int, *arguments: object, num_threads: int | None = None) -> None:
    """Runs a ticket-drawing kernel on the shared pool, in `get_num_threads()` threads unless told otherwise."""
    _pool.run(function, num_tickets, num_threads or get_num_threads(), *arguments)
