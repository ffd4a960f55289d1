"""Threads that share one picture by strips."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache
from threading import Lock

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
    todo = list(enumerate(strips))[::-1]
    done = [False] * len(strips)
    lines = 0
    lock = Lock()

    def work() -> None:
        try:
            with begin() as do:
                while todo:
                    try:
                        number, strip = todo.pop()
                    except IndexError:
                        return  # another thread was faster
                    do(*strip)
                    finish(number)
        except BaseException:
            todo.clear()
            raise

    def finish(number: int) -> None:
        nonlocal lines
        with lock:
            done[number] = True
            while lines < strips[-1][1] and done[strip_at[lines]]:
                lines = strips[strip_at[lines]][1]
            report(lines)

    strip_at = {first: number for number, (first, _) in enumerate(strips)}
    helping = [_helpers().submit(work) for _ in range(min(threads, len(strips)) - 1)]
    try:
        work()
    finally:
        # A helper that is still busy elsewhere is not waited for.
        helping = [helper for helper in helping if not helper.cancel()]
        wait(helping)
    for helper in helping:
        helper.result()


@cache
def _helpers() -> ThreadPoolExecutor:
    """Kept for all pictures: to start a thread takes as long as a small picture."""
    return ThreadPoolExecutor(os.cpu_count(), "strips")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads stay behind in the parent
