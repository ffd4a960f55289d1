"""The etcd store: several replicas, one truth.

A group is a header key and one key a rank. A commit is one transaction of etcd: it compares the header's
`mod_revision`, and puts the header and the ranks that changed. Replicas learn of commits by their watch, of their own
as well, so all see the same ones in the same order.

A route with a lease has a second key that hangs on an etcd lease. When that key goes, whoever sees it commits that the
route went, in the same way as any other change: of several who try one succeeds, so it is one revision.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice

from interlock.topology import Accepted, ExpireRoutes, Topology, transition
from interlock_bootstrap.commits import CommitFeed, CommitWatch
from interlock_bootstrap.stores import (
    CannotOpenStoreError,
    CommitUnknownError,
    Lease,
    StoreFullError,
    StoreListener,
    StoreUnavailableError,
)
from interlock_bootstrap.stores.etcd.client import (
    RANGE,
    TXN,
    EtcdClient,
    EtcdError,
    EtcdFullError,
    EtcdRefusedError,
    EtcdUnavailableError,
    full_jitter,
)
from interlock_bootstrap.stores.etcd.copies import GroupCopy
from interlock_bootstrap.stores.etcd.follower import Follower
from interlock_bootstrap.stores.etcd.keys import Keys
from interlock_bootstrap.stores.etcd.leases import EtcdLeases
from interlock_bootstrap.stores.etcd.records import Difference, commit_operations
from interlock_bootstrap.stores.etcd.rooms import RoomBatches
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

_LAPSES_A_COMMIT = 100
"""Routes that one commit takes away, an operation each."""

_LOGGER = logging.getLogger(__name__)


class EtcdStore:
    """Keeps topologies and rooms in etcd; see `Store`."""

    keeps_leases = True

    def __init__(self, settings: EtcdSettings, watch_buffer: int, room_ttl: float) -> None:
        """
        Args:
            settings: Where etcd is.
            watch_buffer: Commits that one watch may fall behind before it loses them.
            room_ttl: Seconds that rooms are kept.
        """
        self._settings = settings
        self._room_ttl = room_ttl
        self._keys = Keys(settings.prefix)
        self._feed = CommitFeed(watch_buffer)
        self._started = False
        self._repairs: dict[str, asyncio.Task[None]] = {}

    async def start(self, listener: StoreListener) -> None:
        """
        Raises:
            CannotOpenStoreError: A file that the settings name cannot be read, or etcd refuses us.
            StoreUnreachableError: etcd gives no answer.
        """
        try:
            self._client = client = EtcdClient(self._settings)
        except OSError as error:
            raise CannotOpenStoreError(f"cannot read {error.filename}, named for etcd: {error.strerror}") from None
        self._leases = EtcdLeases(client, self._settings)
        self._rooms = RoomBatches(
            client, self._keys, self._leases, listener, self._room_ttl, self._settings.request_timeout_seconds
        )
        self._follower = Follower(
            client,
            self._keys,
            self._settings,
            self._feed,
            on_rooms=self._rooms.take_in,
            on_lapse=self._begin_repair,
            on_availability=listener.availability,
        )
        self._started = True
        await self._follower.start()

    async def close(self) -> None:
        if not self._started:
            return
        await self._follower.close()
        for repair in self._repairs.values():
            repair.cancel()
        await asyncio.gather(*self._repairs.values(), return_exceptions=True)
        await self._rooms.close()
        await self._leases.close()
        await self._client.close()

    # Reads

    async def load(self, group: str, *, fresh: bool = False) -> Topology:
        copy = self._follower.copy(group)
        if fresh:
            with _store_errors():
                mod_revision = await self._header_mod(group)
            await self._follower.until(group, lambda now: now.header_mod >= mod_revision)
            copy = self._follower.copy(group)
        if copy.lapsed:
            # A route whose lease ran out makes its group unready at once, not only once a commit says so.
            lapsed = copy.lapsed.copy()
            await self._follower.until(group, lambda now: lapsed.isdisjoint(now.lapsed))
        return self._follower.copy(group).topology

    def watch(self, group: str) -> CommitWatch:
        return self._feed.watch(self._follower.copy(group).topology)

    async def groups(self, after: str, limit: int) -> list[Topology]:
        self._follower.check_current()
        copies = self._follower.copies
        names = sorted(name for name in copies if name > after)
        return [copies[name].topology for name in names[:limit]]

    async def group_count(self) -> int:
        self._follower.check_current()
        return len(self._follower.copies)

    def end_watches(self) -> None:
        self._feed.end()

    # Commits

    async def compare_and_swap(self, before: Topology, after: Topology) -> bool:
        copy = self._follower.copy(before.group)
        if (copy.topology.revision, copy.topology.leases) != (before.revision, before.leases):
            return False
        with _store_errors():
            return await (self._confirm(copy) if after is before else self._commit(copy, after))

    async def _confirm(self, copy: GroupCopy) -> bool:
        """Whether the group still is as its copy: the same header, and no lease ran out since."""
        topology, compared = copy.topology, copy.header_mod
        first, end = self._keys.leases(topology.group, topology.epoch)
        count = rpc.RequestOp(request_range=rpc.RangeRequest(key=first, range_end=end, count_only=True))
        answer = await self._client.call(TXN, self._if_unchanged(copy, [count]))
        if answer.succeeded and answer.responses[0].response_range.count == len(topology.leases):
            return True
        # This replica is to know what changed before the caller looks again.
        if answer.succeeded:
            await self._follower.until(topology.group, lambda now: now.header_mod != compared or bool(now.lapsed))
        else:
            mod_revision = _mod_revision(answer.responses[0].response_range)
            await self._follower.until(topology.group, lambda now: now.header_mod >= mod_revision)
        return False

    async def _commit(self, copy: GroupCopy, after: Topology) -> bool:
        """Makes what the copy holds into `after`."""
        before = copy.topology
        difference = Difference.between(before, after, copy.lapsed)
        ending = [copy.lease_ids[key] for key in difference.leased + difference.released if key in copy.lease_ids]
        commit_id = os.urandom(16)
        request = self._if_unchanged(copy, [])
        granted = await self._leases.grant_all({key: after.leases[key] for key in difference.leased})
        request.success.extend(commit_operations(self._keys, before, after, difference, granted, commit_id))
        committed = await self._settled(request, after.group, commit_id)
        self._leases.revoke(ending if committed else granted.values())
        return committed

    def _if_unchanged(self, copy: GroupCopy, operations: Sequence[rpc.RequestOp]) -> rpc.TxnRequest:
        """Does operations if the group's header is that of the copy, else reads it."""
        header = self._keys.header(copy.topology.group)
        return rpc.TxnRequest(
            compare=[rpc.Compare(target=rpc.Compare.COMPARE_TARGET_MOD, key=header, mod_revision=copy.header_mod)],
            success=operations,
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=header, keys_only=True))],
        )

    async def _settled(self, request: rpc.TxnRequest, group: str, commit_id: bytes) -> bool:
        """Commits; where the answer is lost, finds out whether it was done.

        Raises:
            CommitUnknownError: That cannot be found out now.
        """
        expected = self._follower.expect(group, commit_id)
        lost = False
        try:
            deadline = time.monotonic() + self._settings.request_timeout_seconds
            attempts = 0
            while True:
                try:
                    answer = await self._client.attempt(TXN, request)
                    break
                except EtcdUnavailableError:
                    lost = True
                    # Read before it is sent again: nothing has been done as long as the header is the one compared.
                    mod_revision = await self._header_mod(group)
                    if mod_revision != request.compare[0].mod_revision:
                        return await self._found(group, mod_revision, expected)
                    if time.monotonic() >= deadline:
                        raise
                    await asyncio.sleep(full_jitter(attempts))
                    attempts += 1
            if answer.succeeded:
                # Its watch shows it to this replica as well, before the caller hears of it. If that takes too long
                # the copies are not current any more, and say so.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.request_timeout_seconds):
                        await expected
                return True
            return await self._found(group, _mod_revision(answer.responses[0].response_range), expected)
        except EtcdRefusedError as error:
            if "lease not found" in str(error):
                return False  # a lease of this commit ran out before it: there will be new ones for the next try
            raise
        except (EtcdUnavailableError, EtcdFullError, StoreUnavailableError) as error:
            if lost:
                raise CommitUnknownError(f"no answer to a commit of group {group!r}: {error}") from error
            raise
        finally:
            expected.cancel()

    async def _found(self, group: str, mod_revision: int, expected: "asyncio.Future[bool]") -> bool:
        """Whether a commit is among those up to a revision of the header."""
        await self._follower.until(group, lambda copy: copy.header_mod >= mod_revision)
        if not expected.done():
            return False
        if not expected.result():
            raise CommitUnknownError(f"commits of group {group!r} were compacted away before this replica saw them")
        return True

    async def _header_mod(self, group: str) -> int:
        """`mod_revision` of a group's header as the whole cluster knows it; 0: it has none."""
        request = rpc.RangeRequest(key=self._keys.header(group), keys_only=True)
        return _mod_revision(await self._client.call(RANGE, request))

    # Leases

    async def renew(self, group: str, leases: Sequence[Lease]) -> list[int]:
        ids = self._lease_ids(group, leases)
        if len(ids) < len(leases):
            await self.load(group, fresh=True)  # perhaps another replica knows more
            ids = self._lease_ids(group, leases)
        ttls = self._follower.copy(group).topology.leases
        with _store_errors():
            renewed = dict(zip(ids, await self._leases.renew(ids.values()), strict=True))
        return [ttls[lease.key] if renewed.get(lease) else 0 for lease in leases]

    def _lease_ids(self, group: str, leases: Sequence[Lease]) -> dict[Lease, int]:
        """The etcd leases of those that there are."""
        copy = self._follower.copy(group)
        routes, instance = copy.topology.routes, copy.topology.instance
        return {
            lease: copy.lease_ids[lease.key]
            for lease in leases
            if lease.key in copy.lease_ids
            and lease.instance == instance
            and lease.key in routes
            and lease.incarnation == routes[lease.key].incarnation
        }

    def _begin_repair(self, group: str) -> None:
        """Called by the follower: leases of a group ran out."""
        if group not in self._repairs:
            self._repairs[group] = asyncio.get_running_loop().create_task(self._repair(group))

    async def _repair(self, group: str) -> None:
        """Commits that routes went, until their group has none left whose lease ran out."""
        attempts = 0
        try:
            while True:
                await asyncio.sleep(full_jitter(attempts))
                copy = self._follower.copies.get(group)
                if copy is None or not (copy.lapsed or copy.miscounted):
                    return
                try:
                    await self._commit(copy, _without_lapsed(copy))
                    attempts = 0
                except (EtcdError, StoreUnavailableError, CommitUnknownError) as error:
                    if not attempts:
                        _LOGGER.warning("routes of group %s whose leases ran out stay for now: %s", group, error)
                    attempts += 1
        finally:
            del self._repairs[group]

    # Rooms

    async def register_rooms(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        self._follower.check_current()
        with _store_errors():
            return await self._rooms.register(group, epoch, dp_ranks)


def _mod_revision(header: rpc.RangeResponse) -> int:
    """That of the one key that was asked for; 0: there is none."""
    return header.kvs[0].mod_revision if header.kvs else 0


def _without_lapsed(copy: GroupCopy) -> Topology:
    """The group without routes whose leases ran out, as many as one commit takes."""
    before = copy.topology
    rows = [(key, before.routes[key].incarnation) for key in islice(sorted(copy.lapsed), _LAPSES_A_COMMIT)]
    outcome = transition(before, ExpireRoutes(tuple(rows)), time.time_ns())
    assert isinstance(outcome, Accepted)
    # With nothing to take away it is the count in the header that is wrong.
    return outcome.topology if rows else replace(before, revision=before.revision + 1)


@contextmanager
def _store_errors() -> Iterator[None]:
    """Says in the store's words what etcd could not do."""
    try:
        yield
    except EtcdFullError as error:
        raise StoreFullError(str(error)) from error
    except EtcdError as error:
        raise StoreUnavailableError(str(error)) from error
