"""Threads that share one picture by strips."""

import ctypes
import os
import platform
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue

Strip = tuple[int, int]
"""The lines from the first to before the second."""


def share(
    begin: Callable[[], AbstractContextManager[Callable[[int, int], None]]],
    strips: Sequence[Strip],
    threads: int,
    report: Callable[[int], None],
) -> None:
    """Do strips in their order, on this thread and on helpers. Returns, or raises the first fault, when all are done.

    Args:
        begin: entered on each thread that takes part, for what it does the strips with.
        strips: one after the other from line 0 on.
        threads: the most to use, this one included. With 1 no other is even started.
        report: called after each strip, one call at a time, with the number of lines before the first that is not done.
            What it raises ends the work.
    """
    work = _Work(begin, strips, report)
    _helpers.ask(work.help, min(threads, len(strips)) - 1)
    try:
        work.take_part()
    finally:
        faults = work.end()
    if faults:
        raise faults[0]


class _Work:
    """The strips of one picture."""

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[Callable[[int, int], None]]],
        strips: Sequence[Strip],
        report: Callable[[int], None],
    ) -> None:
        self._begin: Callable[[], AbstractContextManager[Callable[[int, int], None]]] | None = begin
        self._report = report
        self._strips = strips
        self._todo = list(range(len(strips)))[::-1]
        self._done = [False] * len(strips)
        self._done_in_a_row = 0
        self._reporting = threading.Lock()
        self._entering = threading.Lock()
        self._helping = 0
        self._left: SimpleQueue[BaseException | None] = SimpleQueue()

    def take_part(self) -> None:
        """Do strips until there is none left."""
        assert self._begin is not None
        try:
            with self._begin() as do:
                while True:
                    try:
                        number = self._todo.pop()
                    except IndexError:
                        return
                    do(*self._strips[number])
                    self._finish(number)
        except BaseException:
            self._todo.clear()
            raise

    def _finish(self, number: int) -> None:
        with self._reporting:
            self._done[number] = True
            while self._done_in_a_row < len(self._done) and self._done[self._done_in_a_row]:
                self._done_in_a_row += 1
            self._report(self._strips[self._done_in_a_row - 1][1] if self._done_in_a_row else 0)

    def help(self) -> None:
        """What a helper does."""
        with self._entering:
            if self._begin is None:
                return
            self._helping += 1
        fault: BaseException | None = None
        try:
            self.take_part()
        except BaseException as error:
            fault = error
        self._left.put(fault)

    def end(self) -> list[BaseException]:
        """Let no more helpers in, and wait until those that are have left; their faults."""
        with self._entering:
            self._begin = None  # a helper that is busy elsewhere may come late, and keeps no picture alive meanwhile
        left = [self._left.get() for _ in range(self._helping)]
        return [fault for fault in left if fault is not None]


class _Helper:
    """A thread that is kept for all pictures; starting one would take as long as a small picture.

    Lighter than `concurrent.futures`, whose hand-over and return take another 40 µs.
    """

    def __init__(self, number: int, idle: list["_Helper"]) -> None:
        self._idle = idle
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"strips-{number}", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None], cpus: set[int]) -> None:
        """Do a job, on one of these CPUs; with none given on any."""
        if cpus:
            with suppress(OSError):  # they are no longer allowed
                os.sched_setaffinity(self._thread.native_id or 0, cpus)
        self._jobs.put(job)

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.append(self)


class _Helpers:
    """All helpers of this process: at most as many as there are CPUs."""

    def __init__(self) -> None:
        self._idle: list[_Helper] = []
        self._started = 0
        self._starting = threading.Lock()

    def ask(self, job: Callable[[], None], count: int) -> None:
        """Have up to so many helpers do a job, which must not raise: those that have nothing else to do."""
        cpus = _other_cpus() if count else set()
        for _ in range(count):
            helper = self._pop()
            if helper is None:
                return
            helper.do(job, cpus)

    def _pop(self) -> _Helper | None:
        with suppress(IndexError):
            return self._idle.pop()
        with self._starting:
            if self._started >= (os.cpu_count() or 1):
                return None
            self._started += 1
            return _Helper(self._started, self._idle)


def _other_cpus() -> set[int]:
    """The CPUs that this thread may run on, but for the one it does run on.

    Linux may wake a helper where its caller runs, and leaves it there for milliseconds: where both cores had been busy
    a moment ago, 12 megapixels took 4.8 ms on two threads, and 2.8 with helpers sent elsewhere.
    """
    return os.sched_getaffinity(0) - {_current_cpu()} if _current_cpu is not None else set()


_current_cpu: Callable[[], int] | None = None
if platform.system() == "Linux":
    _current_cpu = ctypes.CDLL(None).sched_getcpu

_helpers = _Helpers()


def _forget_helpers() -> None:
    """In a forked process, where there are no threads but one."""
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)
