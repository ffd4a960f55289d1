"""Commits of a group, handed from the store to whoever follows it.

A watch keeps a bounded number of commits. One that falls further behind loses them all and is told so: it then reads
the current topology as a whole. So a slow watcher costs bounded memory and still ends with the true state.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from types import TracebackType
from typing import Self

from interlock.serving import Refusal
from interlock.topology import Topology
from interlock_bootstrap.refusals import draining
from interlock_bootstrap.watch_messages import change_messages

WOKEN_AT_ONCE = 100
"""Watches that are woken before others have their turn: who registers where 10,000 watch is not answered after them."""


@dataclass(frozen=True)
class Commit:
    """One change of a group: two topologies, one revision apart."""

    before: Topology
    after: Topology

    @cached_property
    def messages(self) -> tuple[bytes, ...]:
        """What a watcher is told of this commit, serialised; made once, whatever the number of watchers."""
        return tuple(message.SerializeToString() for message in change_messages(self.before, self.after))


class CommitWatch:
    """The commits of one group that one follower has yet to see. A context manager; made by `CommitFeed.watch`."""

    def __init__(self, feed: "CommitFeed", current: Topology, buffer: int) -> None:
        self.current = current
        """The group as last committed, whether or not the follower has seen it."""
        self._feed = feed
        self._commits: deque[Commit] = deque()
        self._buffer = buffer
        self._fell_behind = False
        self._ended: Callable[[], Refusal] | None = None
        self._arrival = asyncio.Event()

    def __enter__(self) -> Self:
        self._feed.attach(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feed.detach(self)

    def push(self, commit: Commit) -> None:
        """Called by the feed for each commit; `wake` follows."""
        if len(self._commits) >= self._buffer:
            self.replace(commit.after)
            return
        self.current = commit.after
        if not self._fell_behind:
            self._commits.append(commit)

    def replace(self, topology: Topology) -> None:
        """Called by the feed: the commits that led to this topology are lost, or not known."""
        self.current = topology
        self._commits.clear()
        self._fell_behind = True
        self._arrival.set()

    def end(self, why: Callable[[], Refusal]) -> None:
        """Called by the feed: there is nothing more to see here. `why` makes what the follower gets."""
        self._ended = why
        self._arrival.set()

    def wake(self) -> None:
        """Called by the feed: has `next` give what was pushed, unless it did already."""
        if self._commits or self._fell_behind:
            self._arrival.set()

    def remind(self) -> None:
        """Has `next` give nothing, if there is nothing to give."""
        self._arrival.set()

    async def next(self) -> Commit | Topology | None:
        """The next commit; or, for a follower that fell behind, the current topology as a whole.

        Returns:
            None: the follower was reminded, and nothing came.

        Raises:
            Refusal: DRAINING, STORE_UNAVAILABLE: there is nothing more to see here; follow the group elsewhere.
        """
        await self._arrival.wait()
        if self._ended is not None:
            raise self._ended()
        news: Commit | Topology | None = None
        if self._fell_behind:
            self._fell_behind = False
            news = self.current
        elif self._commits:
            news = self._commits.popleft()
        if not self._commits:
            self._arrival.clear()
        return news

    async def until_revision(self, revision: int) -> Topology:
        """Waits until the group's revision is at least `revision`."""
        while self.current.revision < revision:
            await self.next()
        return self.current


class CommitFeed:
    """Hands each commit of a store to the watches of its group."""

    def __init__(self, buffer: int) -> None:
        """`buffer`: commits that one watch may fall behind before it loses them."""
        self._buffer = buffer
        self._watches: dict[str, set[CommitWatch]] = {}
        self._ended = False

    def watch(self, current: Topology) -> CommitWatch:
        """A watch of the group of `current`, the topology that stands now."""
        return CommitWatch(self, current, self._buffer)

    def attach(self, watch: CommitWatch) -> None:
        self._watches.setdefault(watch.current.group, set()).add(watch)
        if self._ended:
            watch.end(draining)

    def detach(self, watch: CommitWatch) -> None:
        group = watch.current.group
        watches = self._watches[group]
        watches.discard(watch)
        if not watches:
            del self._watches[group]

    def publish(self, commit: Commit) -> None:
        watches = self._watches.get(commit.after.group, ())
        for watch in watches:
            watch.push(commit)
        self._wake(iter(tuple(watches)))

    def _wake(self, watches: Iterator[CommitWatch]) -> None:
        """Wakes some watches, and the others once these had their turn."""
        for number, watch in enumerate(watches, start=1):
            watch.wake()
            if number == WOKEN_AT_ONCE:
                asyncio.get_running_loop().call_soon(self._wake, watches)
                return

    def replace(self, topology: Topology) -> None:
        """The group is as told, and the commits that made it so are not known: its watches get it as a whole."""
        for watch in self._watches.get(topology.group, ()):
            watch.replace(topology)

    def end(self) -> None:
        """Ends every watch, those to come as well: the server is about to stop."""
        self._ended = True
        self.interrupt(draining)

    def interrupt(self, why: Callable[[], Refusal]) -> None:
        """Ends the watches that there are now; `why` makes what their followers get."""
        for watch in chain.from_iterable(self._watches.values()):
            watch.end(why)
