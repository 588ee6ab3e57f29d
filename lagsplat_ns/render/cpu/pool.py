"""A small pool of persistent threads that share one kernel call.

Kernels draw tickets (numbers of tiles or of blocks of Gaussians) from a shared counter until none is left, and release the
GIL meanwhile. The calling thread works too and waits only for helpers that have begun, so a helper that gets no core (or is
missing, as after a fork) costs nothing. Which thread draws a ticket has no influence on its result.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np

MAX_DEFAULT_THREADS = 8
THREADS_VARIABLE = "LAGSPLAT_RENDER_THREADS"


class _Job:
    """One kernel call offered to helpers: `permits` holds a token for every helper that may still begin."""

    def __init__(self, function: Callable[..., None], arguments: tuple, num_helpers: int) -> None:
        self.function = function
        self.arguments = arguments
        self.permits = deque(range(num_helpers))
        self.finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def help(self) -> None:
        try:
            self.permits.pop()
        except IndexError:
            return  # the caller has finished without us
        try:
            self.function(*self.arguments)
        except BaseException as error:  # handed to the caller, who raises it
            self.finished.put(error)
        else:
            self.finished.put(None)


class ThreadPool:
    """Daemon threads, started when first needed, that serve any number of calling threads."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._num_started = 0
        self._lock = threading.Lock()

    def run(self, function: Callable[..., None], num_tickets: int, num_threads: int, *arguments: object) -> None:
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
        try:
            function(*call)
        finally:
            num_begun = num_helpers
            while job.permits:
                try:
                    job.permits.pop()
                except IndexError:
                    break
                num_begun -= 1
            errors = [job.finished.get() for _ in range(num_begun)]
        for error in errors:
            if error is not None:
                raise error

    def _start(self, num_helpers: int) -> None:
        if self._num_started >= num_helpers:
            return
        with self._lock:
            while self._num_started < num_helpers:
                self._num_started += 1
                name = f"lagsplat-render-{self._num_started}"
                threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()


def _serve(jobs: SimpleQueue[_Job]) -> None:
    while True:
        job = jobs.get()
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
    """How many threads one rendering may use."""
    global _num_threads
    if _num_threads is None:
        _num_threads = default_num_threads()
    return _num_threads


def set_num_threads(num_threads: int | None) -> None:
    """Sets how many threads one rendering may use; None returns to the default. Images do not depend on it.

    Raises: ValueError for less than one thread.
    """
    global _num_threads
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"`num_threads` must be at least 1, but is {num_threads}.\n  Pass 1 to render in one thread.")
    _num_threads = num_threads


def run(function: Callable[..., None], num_tickets: int, *arguments: object) -> None:
    """Runs a ticket-drawing kernel on the shared pool."""
    _pool.run(function, num_tickets, get_num_threads(), *arguments)
