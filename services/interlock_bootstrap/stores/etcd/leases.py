"""Leases on etcd: granted with a commit, renewed in bulk, given back when their rows went."""

import asyncio
import math
import secrets
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from interlock.topology import RankKey
from interlock_bootstrap.stores.etcd.client import (
    LEASE_GRANT,
    LEASE_REVOKE,
    EtcdClient,
    EtcdError,
    EtcdRefusedError,
    EtcdUnavailableError,
    full_jitter,
)
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

_MARGIN = 1
"""Seconds beyond the TTL: a lease runs from its grant, before the commit that its row comes with."""


class EtcdLeases:
    """Grants, renews and revokes leases of etcd."""

    def __init__(self, client: EtcdClient, settings: EtcdSettings) -> None:
        self._client = client
        self._settings = settings
        self._renewals: dict[int, asyncio.Future[bool]] = {}
        """Leases that wait for the next stream of renewals."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def grant(self, seconds: float) -> int:
        """A new lease; its id.

        Raises:
            EtcdError: There is none.
        """
        # The id is ours, so that a grant whose answer was lost can be asked for again.
        lease = secrets.randbits(62) + 1
        try:
            await self._client.call(LEASE_GRANT, rpc.LeaseGrantRequest(id=lease, ttl=math.ceil(seconds) + _MARGIN))
        except EtcdRefusedError as error:
            if "lease already exists" not in str(error):
                raise
        return lease

    async def grant_all(self, ttls: Mapping[RankKey, int]) -> dict[RankKey, int]:
        """New leases for ranks, by their TTLs in milliseconds; their ids."""
        return dict(zip(ttls, await asyncio.gather(*(self.grant(ttl / 1_000) for ttl in ttls.values())), strict=True))

    async def renew(self, leases: Iterable[int]) -> list[bool]:
        """Renews leases; those that are asked for at the same time, by whomever, share a stream.

        Returns:
            Whether each still is.

        Raises:
            EtcdError: etcd did not answer within the request timeout.
        """
        loop = asyncio.get_running_loop()
        answers = []
        for lease in leases:
            if not self._renewals:
                self._run(self._renew_all())
            answers.append(self._renewals.setdefault(lease, loop.create_future()))
        return [await asyncio.shield(answer) for answer in answers]

    def revoke(self, leases: Iterable[int]) -> None:
        """Gives back leases whose keys went, in the background. One that stays runs out by itself."""
        for lease in leases:
            self._run(self._revoke(lease))

    async def _revoke(self, lease: int) -> None:
        with suppress(EtcdError):
            await self._client.attempt(LEASE_REVOKE, rpc.LeaseRevokeRequest(id=lease))

    async def _renew_all(self) -> None:
        await asyncio.sleep(0)  # what is asked for in the same moment goes along
        renewals, self._renewals = self._renewals, {}
        try:
            ttls = await self._kept_alive(list(renewals))
        except EtcdError as error:
            for answer in renewals.values():
                answer.set_exception(error)
                answer.exception()  # seen, whether or not somebody still waits
        else:
            for lease, answer in renewals.items():
                answer.set_result(ttls[lease] > 0)

    async def _kept_alive(self, leases: list[int]) -> dict[int, int]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.request_timeout_seconds
        attempts = 0
        while True:
            try:
                return await self._client.keep_alive(leases)
            except EtcdUnavailableError:
                pause = full_jitter(attempts)
                if loop.time() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
                attempts += 1

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
