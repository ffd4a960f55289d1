"""The registry: the rules of `interlock.topology` applied to a store.

Everything that changes a group goes through `Registry.change`, everything that reads one through `Registry.read`.
Requests of a group that come while a commit of it is under way share the next one.
"""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry

from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.topology import (
    Accepted,
    DeregisterRoute,
    ExpireRoutes,
    ForceEpoch,
    Instance,
    Outcome,
    RankKey,
    Refused,
    RegisterRoute,
    Request,
    Topology,
    transition_batch,
)
from interlock_bootstrap.commits import CommitWatch
from interlock_bootstrap.leases import LeaseWheel
from interlock_bootstrap.metrics import BootstrapMetrics
from interlock_bootstrap.refusals import refusal_of
from interlock_bootstrap.stores import CommitUnknownError, Lease, Store, StoreFullError, StoreUnavailableError

Change = RegisterRoute | DeregisterRoute | ForceEpoch
"""What callers ask for."""

LONGEST_WAIT = 60.0
"""Seconds that a call without a deadline waits for what it asked to wait for."""

MAX_BATCH = 60
"""Requests that share one commit: etcd takes 128 operations in a transaction, and a row with a lease costs two."""

MAX_ATTEMPTS = 12
"""Times that a batch is tried while others come first."""

_TELLING_SECONDS = 30e-6
"""What one message to one watcher costs; measured with 2,000 of them."""

_GATHERING_SHARE = 20
_LONGEST_GATHERING = 0.05
"""Where many watch a group that many register in, requests gather for some times as long as it takes to tell the
watchers of one commit: else the server would do little but tell them of single rows. Seconds."""

_GATHERING_STEP = 0.001
_QUIET_TURNS = 8
"""So often nothing more has come after a step, or after a turn of the loop where nobody has to be told: then enough
have gathered. A call takes some five turns until it is here."""

_FIRST_BACKOFF = 0.002
_LONGEST_BACKOFF = 0.25
"""Seconds before the second attempt, at most, doubled with each further one; and before any attempt."""

_LOGGER = logging.getLogger(__name__)


@dataclass
class _Pending:
    """A request whose caller waits."""

    request: Change
    answer: asyncio.Future[Accepted]


class Registry:
    """Applies the rules to a store."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        max_groups: int,
        wheel: LeaseWheel | None = None,
        metrics: BootstrapMetrics | None = None,
    ) -> None:
        """
        Args:
            store: Keeps the topologies.
            clock: Unix time in nanoseconds.
            max_groups: Groups with a history that this registry lets come into being.
            wheel: Keeps the time of leases; there exactly if the store does not.
            metrics: Where changes are counted.
        """
        self._metrics = metrics or BootstrapMetrics(CollectorRegistry())
        self.store = store
        self._clock = clock
        self._max_groups = max_groups
        self._coming_groups = 0
        self._wheel = wheel
        self._queues: dict[str, deque[_Pending]] = {}
        """Requests that wait, of the groups that have a worker."""
        self._watchers: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begins to keep the time of leases; each that the store knows has its full TTL from now on."""
        if self._wheel is None:
            return
        await self._restore_leases(self._wheel)
        self._run(self._wheel.run(self._queue))

    def store_is_back(self) -> None:
        """Each lease that the store knows has its full TTL again: it may have one of a commit that nobody heard of."""
        if self._wheel is not None:
            self._run(self._restore_leases(self._wheel))

    async def _restore_leases(self, wheel: LeaseWheel) -> None:
        last = ""
        while page := await self.store.groups(last, 100):
            for topology in page:
                wheel.restore(topology)
            last = page[-1].group

    async def close(self) -> None:
        """Ends what is under way. Who still waits for an answer gets none."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def change(self, group: str, request: Change) -> Accepted:
        """Applies one request. If the caller is cancelled the change may still happen.

        Returns:
            The group after the commit that the request was part of.

        Raises:
            Refusal: The rules refuse the request, a new group would be one too many, or the store cannot commit it.
                Nothing has changed; but with STORE_UNAVAILABLE after a commit without an answer nobody knows, and to
                ask again is safe.
        """
        pending = _Pending(request, asyncio.get_running_loop().create_future())
        self._queue(group).append(pending)
        return await pending.answer

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        """Renews leases. Of each the milliseconds that it has from now on; 0: there is no such lease."""
        if self._wheel is None:
            return await self.store.renew(group, leases)
        return self._wheel.renew(group, leases)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _queue(self, group: str) -> deque[_Pending]:
        """Requests that wait in a group, and a worker that is at them, also when it is only to see what expired."""
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = deque()
            self._run(self._work(group, queue))
        return queue

    async def _work(self, group: str, queue: deque[_Pending]) -> None:
        """Commits one batch after another until none waits."""
        batch: list[_Pending] = []
        try:
            await asyncio.sleep(0)  # requests that came in the same moment share the first commit
            while True:
                expired = () if self._wheel is None else self._wheel.claim(group)
                batch = _next_batch(queue, {key for key, _ in expired})
                if not batch and not expired:
                    return
                await self._settle(group, expired, batch)
                await self._gather(group, queue, len(batch))
        finally:
            del self._queues[group]
            for pending in (*batch, *queue):
                pending.answer.cancel()  # those that were answered stay so

    async def _gather(self, group: str, queue: deque[_Pending], batch: int) -> None:
        """Lets requests gather after a commit of so many, for each commit costs, and each watcher is told of each.

        Where several register at once, for as long as the loop is at it and brings more; and where many watch, unless
        a batch is full or no more come for a while.
        """
        loop = asyncio.get_running_loop()
        began = now = loop.time()
        quiet = 0
        while len(queue) < MAX_BATCH and quiet < _QUIET_TURNS:
            crowd = batch > 1 or len(queue) > 1
            left = began + self._gathering(group, crowd) - now
            if not crowd and left < _GATHERING_STEP:
                return
            waiting, turn_began = len(queue), now
            pause = _GATHERING_STEP if left >= _GATHERING_STEP else 0
            await asyncio.sleep(pause)
            now = loop.time()
            behind = pause and now - turn_began > 2 * pause  # what came meanwhile has yet to be seen
            quiet = quiet + 1 if waiting == len(queue) and not behind else 0

    def _gathering(self, group: str, crowd: bool) -> float:
        """Seconds to let requests gather, where one registers after another or a crowd does at once."""
        telling = self._watchers[group] * _TELLING_SECONDS
        return min(_LONGEST_GATHERING, telling * _GATHERING_SHARE if crowd else telling)

    async def _settle(self, group: str, expired: tuple[tuple[RankKey, int], ...], batch: list[_Pending]) -> None:
        """Commits one batch, together with the removal of rows that expired, and answers it."""
        requests = [each.request for each in batch]
        try:
            with self._metrics.commit_seconds.time():
                changes = [ExpireRoutes(expired), *requests] if expired else requests
                after, outcomes = await self._committed(group, changes)
        except Exception as error:
            if expired and self._wheel is not None:
                self._wheel.give_back(group)
            if not isinstance(error, Refusal):
                _LOGGER.exception("a change of group %s failed", group)
            for pending in batch:
                _answer(pending, error)
            return
        self._metrics.requests.inc(len(batch))
        self._metrics.expiries.inc(len(expired))
        outcomes = outcomes[len(outcomes) - len(batch) :]
        if self._wheel is not None:
            touched = chain.from_iterable(map(_touched, requests, outcomes))
            self._wheel.settle(after, [*touched, *(key for key, _ in expired)])
        for pending, outcome in zip(batch, outcomes, strict=True):
            _answer(pending, refusal_of(outcome) if isinstance(outcome, Refused) else outcome)

    async def _committed(self, group: str, requests: Sequence[Request]) -> tuple[Topology, tuple[Outcome, ...]]:
        """Applies requests as one change; loads and tries again while others are first."""
        lost: tuple[Topology, tuple[Outcome, ...]] | None = None  # what a commit that got no answer was to make
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                self._metrics.lost_races.inc()
                await asyncio.sleep(random.uniform(0, min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2**attempt)))
            before = await self.store.load(group, fresh=attempt > 0)
            if lost is not None and before == lost[0]:
                return lost
            if lost is not None and before.epoch > lost[0].epoch and isinstance(requests[-1], ForceEpoch):
                break  # nobody knows whether the epoch was forced; twice would drop who registered since
            after, outcomes = transition_batch(before, requests, self._clock())
            if lost is not None:
                outcomes = _with_lost_removals(outcomes, lost[1])
            try:
                if await self._renewed(before, requests, outcomes) and await self._swap(before, after):
                    return after, outcomes
            except CommitUnknownError:
                lost = after, outcomes
            except StoreFullError:
                if lost is None:
                    raise
                break  # it tells of this attempt alone; the one without an answer may yet come to stand
        if lost is not None:
            raise StoreUnavailableError(f"no answer whether a change of group {group!r} stands; ask again")
        raise Refusal(
            Reason.STORE_CONTENDED,
            f"others changed group {group!r} first, {MAX_ATTEMPTS} times in a row",
            retry_delay=1.0,
        )

    async def _renewed(self, before: Topology, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> bool:
        """Begins anew the leases of rows that are registered again as they stand, where the store keeps leases.

        Before the commit: so that afterwards it is sure that they still stand, with all of their time.

        Returns:
            Whether all of those leases still are.
        """
        if self._wheel is not None:
            return True
        standing = [
            Lease(request.route.key, request.instance, request.route.incarnation)
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(request, RegisterRoute)
            and isinstance(outcome, Accepted)
            and request.lease_ttl is not None
            and before.leases.get(request.route.key) == request.lease_ttl
            and before.instance == request.instance
            and before.routes[request.route.key] is outcome.topology.routes[request.route.key]
        ]
        return not standing or all(await self.store.renew(before.group, standing))

    async def _swap(self, before: Topology, after: Topology) -> bool:
        new_groups = int(before.revision == 0 and after.revision > 0)
        self._coming_groups += new_groups
        try:
            if new_groups and await self.store.group_count() + self._coming_groups > self._max_groups:
                raise Refusal(
                    Reason.TOO_MANY_GROUPS,
                    f"group {after.group!r} would be one more than the {self._max_groups} groups that this server "
                    "keeps",
                    metadata={"max_groups": str(self._max_groups)},
                )
            swapped = await self.store.compare_and_swap(before, after)
            self._metrics.epochs.inc(swapped and after.epoch != before.epoch)
            return swapped
        finally:
            self._coming_groups -= new_groups

    async def read(self, group: str, min_revision: int | None = None, time_remaining: float | None = None) -> Topology:
        """The group as last committed.

        Args:
            group: Name of the group.
            min_revision: Wait until the group's revision is at least this.
            time_remaining: Seconds until the caller's deadline.

        Raises:
            Refusal: The group has no history (UNKNOWN_GROUP), or did not reach the revision in time.
        """
        topology = await self.store.load(group)
        if min_revision is not None and topology.revision < min_revision:
            topology = await self._wait_for(group, min_revision, time_remaining)
        if topology.revision == 0:
            raise Refusal(
                Reason.UNKNOWN_GROUP,
                f"group {group!r} is unknown: no rank ever registered in it; `interlock group list` shows the groups",
                metadata={"group": group},
            )
        return topology

    @contextmanager
    def follow(self, group: str) -> Iterator[CommitWatch]:
        """Follows the commits of a group."""
        self._watchers[group] += 1
        try:
            with self.store.watch(group) as watch:
                yield watch
        finally:
            self._watchers[group] -= 1
            if not self._watchers[group]:
                del self._watchers[group]

    async def _wait_for(self, group: str, min_revision: int, time_remaining: float | None) -> Topology:
        with self.store.watch(group) as watch:
            try:
                async with asyncio.timeout(LONGEST_WAIT if time_remaining is None else time_remaining):
                    return await watch.until_revision(min_revision)
            except TimeoutError:
                raise Refusal(
                    Reason.REVISION_NOT_REACHED,
                    f"group {group!r} is at revision {watch.current.revision} and did not reach {min_revision} in time",
                    metadata={"revision": str(watch.current.revision)},
                ) from None


def _answer(pending: _Pending, answer: Accepted | Exception) -> None:
    if pending.answer.done():
        return  # the caller has gone
    if isinstance(answer, Exception):
        pending.answer.set_exception(answer)
    else:
        pending.answer.set_result(answer)


def _next_batch(queue: deque[_Pending], expired: Iterable[RankKey]) -> list[_Pending]:
    """Takes from the front of a queue the requests that can share a commit, in their order.

    That is at most one a key, registrations of one instance only, an `expected_revision` only at the very front, and
    a forced epoch alone: so nobody is answered success for a row that no revision shows, or by a revision that nobody
    could see.

    Args:
        queue: Requests that wait.
        expired: Keys of rows that expired; their removal comes first in the batch.
    """
    batch: list[_Pending] = []
    keys = set(expired)
    instance: Instance | None = None
    while queue and len(batch) < MAX_BATCH:
        pending = queue[0]
        if pending.answer.cancelled():
            queue.popleft()
            continue
        if keys and not _fits(pending.request, keys, instance):
            break
        batch.append(queue.popleft())
        match pending.request:
            case ForceEpoch():
                break
            case RegisterRoute(route, instance):
                keys.add(route.key)
            case DeregisterRoute(key):
                keys.add(key)
    return batch


def _fits(request: Change, keys: set[RankKey], instance: Instance | None) -> bool:
    """Whether a request can share a commit with others before it: of these keys, and of this instance if any."""
    match request:
        case ForceEpoch():
            return False
        case RegisterRoute():
            return (
                request.route.key not in keys
                and request.instance == (instance or request.instance)
                and request.expected_revision is None
            )
        case DeregisterRoute():
            return request.key not in keys


def _touched(request: Change, outcome: Outcome) -> tuple[RankKey, ...]:
    """The key whose lease begins anew or ends with a request."""
    if isinstance(outcome, Accepted):
        match request:
            case RegisterRoute():
                return (request.route.key,)
            case DeregisterRoute() if outcome.removed_routes:
                return (request.key,)
    return ()


def _with_lost_removals(outcomes: Sequence[Outcome], lost: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Outcomes of a second try. What a commit without an answer was to remove, and is gone, counts as removed."""
    return tuple(
        replace(again, removed_routes=before.removed_routes)
        if isinstance(again, Accepted) and isinstance(before, Accepted) and not again.removed_routes
        else again
        for again, before in zip(outcomes, lost, strict=True)
    )
