"""Holds the writer of a store back, so that what waits for it is known."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interlock_bootstrap.stores.sqlite import SqliteStore


@contextmanager
def disk_held(store: SqliteStore) -> Iterator[None]:
    """Keeps the writer in a transaction of its own for the block: what is submitted meanwhile waits."""
    entered, go_on = threading.Event(), threading.Event()

    class Holding(list):
        def __iter__(self):
            entered.set()
            assert go_on.wait(30)
            return super().__iter__()

    store.writer.submit(Holding())
    assert entered.wait(30)
    try:
        yield
    finally:
        go_on.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in a thread
            await asyncio.sleep(0.001)


async def until_waiting(store: SqliteStore, jobs: int) -> None:
    await until(lambda: store.writer.waiting >= jobs)
