"""Rooms on etcd: packed into batches, which hang on leases that many batches share."""

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from interlock_bootstrap.stores import StoreListener, StoreUnavailableError
from interlock_bootstrap.stores.etcd.client import TXN, EtcdClient, EtcdError, EtcdRefusedError
from interlock_bootstrap.stores.etcd.keys import Keys, ParsedKey
from interlock_bootstrap.stores.etcd.leases import EtcdLeases
from interlock_bootstrap.stores.etcd.v1 import records_pb2
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

ROOMS_A_KEY = 1_000
_KEYS_A_COMMIT = 64
"""A key of 1,000 rooms has about 13 KB; etcd takes 1.5 MiB in a transaction."""
_GATHERING = 0.01
"""Seconds in which rooms gather for a commit."""
_BUCKET = 30.0
"""Seconds in which batches come onto the same lease."""


@dataclass
class _Part:
    """Rooms of one caller, as many as go into one key."""

    group: str
    epoch: int
    dp_ranks: dict[int, int]
    registered: asyncio.Future[tuple[int, int]]


class RoomBatches:
    """Commits rooms, and tells of those that anybody committed."""

    def __init__(
        self, client: EtcdClient, keys: Keys, leases: EtcdLeases, listener: StoreListener, ttl: float, patience: float
    ) -> None:
        """
        Args:
            client: Speaks to etcd.
            keys: The store's keys.
            leases: Grants what the batches hang on.
            listener: Is told of every room.
            ttl: Seconds that rooms are kept.
            patience: Seconds to wait for a commit.
        """
        self._client = client
        self._keys = keys
        self._leases = leases
        self._listener = listener
        self._ttl = ttl
        self._patience = patience
        self._name = secrets.token_hex(8)
        """Of this replica; its keys sort in the order in which it made them."""
        self._count = 0
        self._pending: deque[_Part] = deque()
        self._sent: dict[bytes, list[_Part]] = {}
        """Parts of each key that was sent and has not come by the watch."""
        self._committer: asyncio.Task[None] | None = None
        self._bucket: tuple[float, int] | None = None
        """When the present lease stops to take further batches, and its id."""

    async def close(self) -> None:
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.gather(self._committer, return_exceptions=True)

    async def register(self, group: str, epoch: int, dp_ranks: Mapping[int, int]) -> tuple[int, int]:
        """Commits rooms; returns what the listener said to them.

        Raises:
            EtcdError: They were not committed.
            StoreUnavailableError: They may have been, but the watch did not show it in time.
        """
        loop = asyncio.get_running_loop()
        rooms = iter(dp_ranks.items())
        parts = []
        while chunk := dict(islice(rooms, ROOMS_A_KEY)):
            parts.append(_Part(group, epoch, chunk, loop.create_future()))
        self._pending += parts
        if self._committer is None:
            self._committer = loop.create_task(self._commit_pending())
        try:
            async with asyncio.timeout(self._patience):
                counts = await asyncio.gather(*(part.registered for part in parts))
        except TimeoutError:
            raise StoreUnavailableError(f"no answer whether rooms of group {group!r} were kept; ask again") from None
        return sum(new for new, _ in counts), sum(known for _, known in counts)

    def take_in(self, parsed: ParsedKey, kv: rpc.KeyValue) -> None:
        """Called by the follower for each record of rooms, in order."""
        if (parts := self._sent.pop(kv.key, None)) is None:
            record = records_pb2.Rooms.FromString(kv.value)
            dp_ranks = dict(zip(record.rooms, record.dp_ranks, strict=True))
            self._listener.rooms_committed(parsed.group, parsed.epoch, dp_ranks)
            return
        for part in parts:  # each caller is told of its own
            counts = self._listener.rooms_committed(part.group, part.epoch, part.dp_ranks)
            if not part.registered.done():
                part.registered.set_result(counts)

    async def _commit_pending(self) -> None:
        """Commits until nothing is pending; what comes meanwhile gathers for the next commit."""
        try:
            await asyncio.sleep(_GATHERING)
            while self._pending:
                batches = self._next_batches()
                self._sent |= batches
                try:
                    await self._commit(batches)
                except EtcdError as error:
                    for key, parts in batches.items():
                        self._sent.pop(key, None)
                        for part in parts:
                            if not part.registered.done():
                                part.registered.set_exception(error)
        finally:
            self._committer = None

    def _next_batches(self) -> dict[bytes, list[_Part]]:
        """What goes into the next commit, by key."""
        batches: dict[bytes, list[_Part]] = {}
        filling: dict[tuple[str, int], tuple[bytes, int]] = {}
        while self._pending and len(batches) < _KEYS_A_COMMIT:
            part = self._pending.popleft()
            place = part.group, part.epoch
            key, count = filling.get(place, (b"", ROOMS_A_KEY))
            if count + len(part.dp_ranks) > ROOMS_A_KEY:
                self._count += 1
                key, count = self._keys.rooms(*place, f"{self._name}-{self._count:016x}"), 0
                batches[key] = []
            batches[key].append(part)
            filling[place] = key, count + len(part.dp_ranks)
        return batches

    async def _commit(self, batches: dict[bytes, list[_Part]]) -> None:
        try:
            await self._put(batches, await self._present_bucket())
        except EtcdRefusedError as error:
            if "lease not found" not in str(error):
                raise
            self._bucket = None  # etcd lost it, or was stopped for so long
            await self._put(batches, await self._present_bucket())

    async def _put(self, batches: dict[bytes, list[_Part]], lease: int) -> None:
        """Puts all keys at once, if they are not there yet: so it can be asked for again, and happens only once."""
        puts = [rpc.PutRequest(key=self._keys.last_commit)]
        for key, parts in batches.items():
            record = records_pb2.Rooms()
            for part in parts:
                record.rooms.extend(part.dp_ranks.keys())
                record.dp_ranks.extend(part.dp_ranks.values())
            puts.append(rpc.PutRequest(key=key, value=record.SerializeToString(), lease=lease))
        unwritten = rpc.Compare(target=rpc.Compare.COMPARE_TARGET_VERSION, key=next(iter(batches)), version=0)
        await self._client.call(
            TXN, rpc.TxnRequest(compare=[unwritten], success=[rpc.RequestOp(request_put=put) for put in puts])
        )

    async def _present_bucket(self) -> int:
        now = asyncio.get_running_loop().time()
        if self._bucket is None or self._bucket[0] <= now:
            self._bucket = now + _BUCKET, await self._leases.grant(self._ttl + _BUCKET)
        return self._bucket[1]
