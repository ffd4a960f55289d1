"""Clients of the Bootstrap service: ranks register, decode servers and routers learn the topology.

    with BootstrapClient("localhost:50051") as client:
        client.register_route(route, instance)
        ready = client.get_prefill_server_info(wait=True, timeout=120)
        print(ready.info.page_size, ready.epoch)

A registration that stands as offered succeeds and changes nothing, so making a call again is safe. A call that finds
no server is therefore tried again within its timeout; only `force_epoch` is not. A refusal is raised at once.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, closing
from functools import cached_property

import grpc

from interlock.bootstrap.v1 import bootstrap_service_pb2_grpc
from interlock.client._internal import bootstrap_rpcs as rpcs
from interlock.client._internal.faces import NO_REASONS, AsyncFace, SyncFace
from interlock.client._internal.following import Following
from interlock.client._internal.lease_keepers import AsyncLeaseKeeper, LeaseKeeper
from interlock.client._internal.retry import DEFAULT_RETRY, NO_RETRY, Attempts, RetryPolicy
from interlock.client._internal.statuses import error_of, raise_if_closed
from interlock.client.credentials import NO_CREDENTIALS, Credentials
from interlock.client.errors import DeadlineError, InterlockError, UnreachableError
from interlock.client.groups import (
    Compatibility,
    Deregistered,
    DpRanksRegistered,
    ForcedEpoch,
    RankInfo,
    ReadyGroup,
    Registered,
    RoomRank,
    WatchItem,
    WatchSnapshot,
)
from interlock.client.launch import new_instance
from interlock.client.registrations import DEFAULT_LEASE_TTL, AsyncRegistration, Registration
from interlock.topology import DecodeServer, GroupState, Instance, RankKey, Route

_ROOM_TIMEOUT = 60.0


class BootstrapClient(SyncFace):
    """Synchronous client of the Bootstrap service. May be used from many threads.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates; none: plain text, for a server that lets everyone in.

    Every method raises, beside what it names, `UnreachableError`, `DeadlineError`, and `InvalidRequestError` with
    every faulty field.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        super().__init__(address, timeout=timeout, retry=retry, credentials=credentials)
        self._stub = bootstrap_service_pb2_grpc.BootstrapServiceStub(self._channel)
        self._leases = LeaseKeeper(self._stub, address, retry, timeout)

    def close(self) -> None:
        """Close the connection; open calls and streams end with an error, registrations when their leases run out."""
        self._leases.close()
        super().close()

    def register_route(
        self,
        route: Route,
        instance: Instance,
        *,
        group: str = "default",
        expected_revision: int | None = None,
        lease_ttl: float | None = None,
        timeout: float | None = None,
    ) -> Registered:
        """Register one rank.

        Args:
            route: the rank, its address and what it shares with its group.
            instance: the launch that the rank belongs to; the same for all its ranks.
            group: the prefill server.
            expected_revision: compare-and-swap: register only if the group is at this revision; 0: only if no route
                lives. None: the server orders concurrent registrations.
            lease_ttl: seconds after which the route goes by itself, 1 to 86,400; registering again renews them.
                None: it stays until it is removed. `registration` keeps a lease.
            timeout: seconds. None: that of the client.

        Raises:
            RevisionConflictError: the group is at another revision; its `conflict` has what is needed to try again.
            ContractMismatchError: the rank does not fit its group; its `mismatch` has every field and both values.
            StaleInstanceError, StaleIncarnationError: a newer launch or process took over. Stop; do not try again.
            InvalidFieldsError: a number that cannot even be sent, for example a negative port.
        """
        return self._call(
            self._stub.RegisterRoute,
            rpcs.register_route(route, instance, group, expected_revision, lease_ttl),
            timeout,
        )

    def registration(
        self,
        route: Route,
        instance: Instance | None = None,
        *,
        group: str = "default",
        lease_ttl: float = DEFAULT_LEASE_TTL,
        timeout: float | None = None,
    ) -> "Registration":
        """Keep one rank registered for the length of a `with` block, whatever happens to the server meanwhile.

        All registrations of one client are renewed together, on one stream.

        Args:
            route: the rank, its address and what it shares with its group.
            instance: the launch that the rank belongs to. None: the one in the environment variable
                `INTERLOCK_INSTANCE`; if there is none and the rank is alone in its group, a new one is minted.
            group: the prefill server.
            lease_ttl: seconds after which the rank counts as gone if it cannot be renewed; 1 to 86,400.
            timeout: seconds for the first registration. None: that of the client.

        Example:
            with client.registration(route, group="prefill-a") as registration:
                print(registration.revision)
        """
        return Registration(self, self._leases, route, instance, group, lease_ttl, timeout)

    def deregister_route(
        self,
        key: RankKey,
        instance: Instance,
        incarnation: int,
        *,
        group: str = "default",
        timeout: float | None = None,
    ) -> Deregistered:
        """Remove one rank's route, if it is the one of exactly this instance and incarnation."""
        return self._call(self._stub.DeregisterRoute, rpcs.deregister_route(key, instance, incarnation, group), timeout)

    def mint_instance(self, group: str = "default", *, timeout: float | None = None) -> Instance:
        """An instance for a new launch: one that the group will accept, and that ends what it serves now.

        For the launcher, which hands it to all ranks: `instance_environment` puts it into their environment.

        Args:
            group: the prefill server; may be unknown as yet.
            timeout: seconds. None: that of the client.
        """
        bound = self._timeout if timeout is None else timeout
        with closing(self.watch_topology(group, timeout=bound)) as items:
            for item in items:
                if isinstance(item, WatchSnapshot):
                    return new_instance(item.state.floor)
        raise AssertionError("a watch ends only by an error")

    def get_prefill_server_info(
        self,
        group: str = "default",
        *,
        wait: bool = False,
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> ReadyGroup:
        """What all ranks of a ready group share.

        Args:
            group: the prefill server.
            wait: if the group is not ready, or unknown as yet, look again until it is or the timeout is over.
            min_revision: read at this revision or a later one; the server waits for it.
            timeout: seconds. None: that of the client.

        Raises:
            NotReadyError: ranks are missing or undeclared; its `state` names them.
            NotFoundError: nobody registered in this group.
        """
        return self._call(
            self._stub.GetPrefillServerInfo,
            rpcs.get_prefill_server_info(group, min_revision),
            timeout,
            rpcs.NOT_READY_YET if wait else NO_REASONS,
        )

    def get_rank_info(
        self,
        key: RankKey,
        *,
        group: str = "default",
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> RankInfo:
        """Where one rank is.

        Raises:
            NotFoundError: unknown group, or no route of this key.
        """
        return self._call(self._stub.GetRankInfo, rpcs.get_rank_info(key, group, min_revision), timeout)

    def list_groups(self, *, timeout: float | None = None) -> Generator[GroupState, None, None]:
        """All groups with their state, in the order of their names; fetched page by page.

        Args:
            timeout: seconds for each page. None: that of the client.
        """
        token = ""
        while True:
            groups, token = self._call(self._stub.ListGroups, rpcs.list_groups(token), timeout)
            yield from groups
            if not token:
                return

    def watch_topology(
        self,
        group: str = "default",
        *,
        timeout: float | None = None,
        on_lost: Callable[[InterlockError], object] | None = None,
    ) -> Generator[WatchItem, None, None]:
        """Follow one group: its state first, then every change, with signs of life in between.

        Each snapshot and each change carries the whole group as it is then. A watch that lost its server looks for it
        until it is found, and goes on where it stopped; if the group changed meanwhile, a snapshot comes and what
        happened in between is not told. Only a first connection that cannot be made is given up.

        Args:
            group: the prefill server; may be unknown as yet.
            timeout: seconds for the whole watch. None: no bound.
            on_lost: is told, whenever the watch is without a server and looks for one, what failed last. The next item
                says that one was found.

        Raises:
            DeadlineError: the timeout is over.

        Example:
            for item in client.watch_topology():
                if isinstance(item, WatchSnapshot | WatchChange) and item.state.ready:
                    break
        """
        following = Following(group)
        attempts = Attempts(self._retry, timeout)
        while True:
            call = self._stub.WatchTopology(following.request(), timeout=attempts.time_left())
            try:
                for message in call:
                    attempts.progressed()
                    attempts.never_give_up()
                    item = following.receive(message)
                    if item is not None:
                        yield item
                lost: InterlockError = UnreachableError(f"{self.address}: the server ended the watch")
            except grpc.RpcError as error:
                lost = error_of(error, self.address)
            finally:
                call.cancel()
            pause = attempts.pause_after(lost)
            if on_lost is not None:
                on_lost(lost)
            time.sleep(pause)

    def check_compatibility(
        self,
        decode_server: DecodeServer,
        *,
        group: str = "default",
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> Compatibility:
        """Whether a decode server fits what a group declared so far; every violation is named.

        Raises:
            NotFoundError: nobody registered in this group.
        """
        return self._call(
            self._stub.CheckCompatibility, rpcs.check_compatibility(decode_server, group, min_revision), timeout
        )

    def force_epoch(
        self, *, group: str = "default", floor: Instance | None = None, timeout: float | None = None
    ) -> ForcedEpoch:
        """Admin: drop a group's routes, begin a new epoch, and set its floor, also downwards.

        Never tried again by itself: after a lost answer, a second time would drop what has registered since.

        Args:
            group: the prefill server.
            floor: the oldest instance accepted from now on. None: any.
            timeout: seconds. None: that of the client.
        """
        return self._call(self._stub.ForceEpoch, rpcs.force_epoch(group, floor), timeout, retry=NO_RETRY)

    def register_dp_ranks(
        self, assignments: Mapping[int, int], *, group: str = "default", timeout: float | None = None
    ) -> DpRanksRegistered:
        """Keep which DP rank serves each room; all or none.

        Args:
            assignments: DP rank of each room; at most 10,000.
            group: the prefill server.
            timeout: seconds. None: that of the client.
        """
        return self._call(self._stub.RegisterDpRanks, rpcs.register_dp_ranks(assignments, group), timeout)

    def query_dp_ranks(
        self, rooms: Iterable[int], *, group: str = "default", timeout: float | None = None
    ) -> dict[int, int]:
        """DP ranks of rooms, of those that are known now; at most 10,000 rooms."""
        return self._call(self._stub.QueryDpRanks, rpcs.query_dp_ranks(rooms, group), timeout)

    def wait_dp_ranks(
        self, rooms: Iterable[int], *, group: str = "default", timeout: float = _ROOM_TIMEOUT
    ) -> Generator[RoomRank, None, None]:
        """DP ranks of rooms, each as it becomes known; at most 10,000 rooms.

        Ends when all are known or the timeout is over: rooms that did not come are unknown.

        Args:
            rooms: which.
            group: the prefill server.
            timeout: seconds to wait for them.
        """
        wait = rpcs.RoomWait(rooms, group)
        attempts = Attempts(self._retry, timeout)
        while not wait.over:
            call = self._stub.WaitDpRanks(wait.request(), timeout=attempts.time_left())
            try:
                for message in call:
                    attempts.progressed()
                    yield from wait.receive(message)
                return
            except grpc.RpcError as error:
                failure = error_of(error, self.address)
                if isinstance(failure, DeadlineError):
                    return
                pause = attempts.pause_after(failure)
            finally:
                call.cancel()
            time.sleep(pause)


class AsyncBootstrapClient(AsyncFace):
    """Asynchronous client of the Bootstrap service, for one event loop.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates; none: plain text, for a server that lets everyone in.

    Every method raises, beside what it names, `UnreachableError`, `DeadlineError`, and `InvalidRequestError` with
    every faulty field.
    """

    @cached_property
    def _stub(self) -> "bootstrap_service_pb2_grpc.BootstrapServiceAsyncStub":
        return bootstrap_service_pb2_grpc.BootstrapServiceStub(self._channel)

    @cached_property
    def _leases(self) -> AsyncLeaseKeeper:
        return AsyncLeaseKeeper(self._stub, self.address, self._retry, self._timeout)

    async def close(self) -> None:
        """Close the connection; open calls and streams end with an error, registrations when their leases run out."""
        if "_leases" in self.__dict__:
            await self._leases.close()
        await super().close()

    async def register_route(
        self,
        route: Route,
        instance: Instance,
        *,
        group: str = "default",
        expected_revision: int | None = None,
        lease_ttl: float | None = None,
        timeout: float | None = None,
    ) -> Registered:
        """Register one rank.

        Args:
            route: the rank, its address and what it shares with its group.
            instance: the launch that the rank belongs to; the same for all its ranks.
            group: the prefill server.
            expected_revision: compare-and-swap: register only if the group is at this revision; 0: only if no route
                lives. None: the server orders concurrent registrations.
            lease_ttl: seconds after which the route goes by itself, 1 to 86,400; registering again renews them.
                None: it stays until it is removed. `registration` keeps a lease.
            timeout: seconds. None: that of the client.

        Raises:
            RevisionConflictError: the group is at another revision; its `conflict` has what is needed to try again.
            ContractMismatchError: the rank does not fit its group; its `mismatch` has every field and both values.
            StaleInstanceError, StaleIncarnationError: a newer launch or process took over. Stop; do not try again.
            InvalidFieldsError: a number that cannot even be sent, for example a negative port.
        """
        return await self._call(
            self._stub.RegisterRoute,
            rpcs.register_route(route, instance, group, expected_revision, lease_ttl),
            timeout,
        )

    def registration(
        self,
        route: Route,
        instance: Instance | None = None,
        *,
        group: str = "default",
        lease_ttl: float = DEFAULT_LEASE_TTL,
        timeout: float | None = None,
    ) -> "AsyncRegistration":
        """Keep one rank registered for the length of a `with` block, whatever happens to the server meanwhile.

        All registrations of one client are renewed together, on one stream.

        Args:
            route: the rank, its address and what it shares with its group.
            instance: the launch that the rank belongs to. None: the one in the environment variable
                `INTERLOCK_INSTANCE`; if there is none and the rank is alone in its group, a new one is minted.
            group: the prefill server.
            lease_ttl: seconds after which the rank counts as gone if it cannot be renewed; 1 to 86,400.
            timeout: seconds for the first registration. None: that of the client.

        Example:
            async with client.registration(route, group="prefill-a") as registration:
                print(registration.revision)
        """
        return AsyncRegistration(self, self._leases, route, instance, group, lease_ttl, timeout)

    async def deregister_route(
        self,
        key: RankKey,
        instance: Instance,
        incarnation: int,
        *,
        group: str = "default",
        timeout: float | None = None,
    ) -> Deregistered:
        """Remove one rank's route, if it is the one of exactly this instance and incarnation."""
        return await self._call(
            self._stub.DeregisterRoute, rpcs.deregister_route(key, instance, incarnation, group), timeout
        )

    async def mint_instance(self, group: str = "default", *, timeout: float | None = None) -> Instance:
        """An instance for a new launch: one that the group will accept, and that ends what it serves now.

        For the launcher, which hands it to all ranks: `instance_environment` puts it into their environment.

        Args:
            group: the prefill server; may be unknown as yet.
            timeout: seconds. None: that of the client.
        """
        bound = self._timeout if timeout is None else timeout
        async with aclosing(self.watch_topology(group, timeout=bound)) as items:
            async for item in items:
                if isinstance(item, WatchSnapshot):
                    return new_instance(item.state.floor)
        raise AssertionError("a watch ends only by an error")

    async def get_prefill_server_info(
        self,
        group: str = "default",
        *,
        wait: bool = False,
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> ReadyGroup:
        """What all ranks of a ready group share.

        Args:
            group: the prefill server.
            wait: if the group is not ready, or unknown as yet, look again until it is or the timeout is over.
            min_revision: read at this revision or a later one; the server waits for it.
            timeout: seconds. None: that of the client.

        Raises:
            NotReadyError: ranks are missing or undeclared; its `state` names them.
            NotFoundError: nobody registered in this group.
        """
        return await self._call(
            self._stub.GetPrefillServerInfo,
            rpcs.get_prefill_server_info(group, min_revision),
            timeout,
            rpcs.NOT_READY_YET if wait else NO_REASONS,
        )

    async def get_rank_info(
        self,
        key: RankKey,
        *,
        group: str = "default",
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> RankInfo:
        """Where one rank is.

        Raises:
            NotFoundError: unknown group, or no route of this key.
        """
        return await self._call(self._stub.GetRankInfo, rpcs.get_rank_info(key, group, min_revision), timeout)

    async def list_groups(self, *, timeout: float | None = None) -> AsyncGenerator[GroupState, None]:
        """All groups with their state, in the order of their names; fetched page by page.

        Args:
            timeout: seconds for each page. None: that of the client.
        """
        token = ""
        while True:
            groups, token = await self._call(self._stub.ListGroups, rpcs.list_groups(token), timeout)
            for group in groups:
                yield group
            if not token:
                return

    async def watch_topology(
        self,
        group: str = "default",
        *,
        timeout: float | None = None,
        on_lost: Callable[[InterlockError], object] | None = None,
    ) -> AsyncGenerator[WatchItem, None]:
        """Follow one group: its state first, then every change, with signs of life in between.

        Each snapshot and each change carries the whole group as it is then. A watch that lost its server looks for it
        until it is found, and goes on where it stopped; if the group changed meanwhile, a snapshot comes and what
        happened in between is not told. Only a first connection that cannot be made is given up.

        Args:
            group: the prefill server; may be unknown as yet.
            timeout: seconds for the whole watch. None: no bound.
            on_lost: is told, whenever the watch is without a server and looks for one, what failed last. The next item
                says that one was found.

        Raises:
            DeadlineError: the timeout is over.

        Example:
            async for item in client.watch_topology():
                if isinstance(item, WatchSnapshot | WatchChange) and item.state.ready:
                    break
        """
        following = Following(group)
        attempts = Attempts(self._retry, timeout)
        while True:
            call = self._stub.WatchTopology(following.request(), timeout=attempts.time_left())
            try:
                async for message in call:
                    attempts.progressed()
                    attempts.never_give_up()
                    item = following.receive(message)
                    if item is not None:
                        yield item
                lost: InterlockError = UnreachableError(f"{self.address}: the server ended the watch")
            except grpc.RpcError as error:
                lost = error_of(error, self.address)
            except asyncio.CancelledError:
                raise_if_closed(self.address)
                raise
            finally:
                call.cancel()
            pause = attempts.pause_after(lost)
            if on_lost is not None:
                on_lost(lost)
            await asyncio.sleep(pause)

    async def check_compatibility(
        self,
        decode_server: DecodeServer,
        *,
        group: str = "default",
        min_revision: int | None = None,
        timeout: float | None = None,
    ) -> Compatibility:
        """Whether a decode server fits what a group declared so far; every violation is named.

        Raises:
            NotFoundError: nobody registered in this group.
        """
        return await self._call(
            self._stub.CheckCompatibility, rpcs.check_compatibility(decode_server, group, min_revision), timeout
        )

    async def force_epoch(
        self, *, group: str = "default", floor: Instance | None = None, timeout: float | None = None
    ) -> ForcedEpoch:
        """Admin: drop a group's routes, begin a new epoch, and set its floor, also downwards.

        Never tried again by itself: after a lost answer, a second time would drop what has registered since.

        Args:
            group: the prefill server.
            floor: the oldest instance accepted from now on. None: any.
            timeout: seconds. None: that of the client.
        """
        return await self._call(self._stub.ForceEpoch, rpcs.force_epoch(group, floor), timeout, retry=NO_RETRY)

    async def register_dp_ranks(
        self, assignments: Mapping[int, int], *, group: str = "default", timeout: float | None = None
    ) -> DpRanksRegistered:
        """Keep which DP rank serves each room; all or none.

        Args:
            assignments: DP rank of each room; at most 10,000.
            group: the prefill server.
            timeout: seconds. None: that of the client.
        """
        return await self._call(self._stub.RegisterDpRanks, rpcs.register_dp_ranks(assignments, group), timeout)

    async def query_dp_ranks(
        self, rooms: Iterable[int], *, group: str = "default", timeout: float | None = None
    ) -> dict[int, int]:
        """DP ranks of rooms, of those that are known now; at most 10,000 rooms."""
        return await self._call(self._stub.QueryDpRanks, rpcs.query_dp_ranks(rooms, group), timeout)

    async def wait_dp_ranks(
        self, rooms: Iterable[int], *, group: str = "default", timeout: float = _ROOM_TIMEOUT
    ) -> AsyncGenerator[RoomRank, None]:
        """DP ranks of rooms, each as it becomes known; at most 10,000 rooms.

        Ends when all are known or the timeout is over: rooms that did not come are unknown.

        Args:
            rooms: which.
            group: the prefill server.
            timeout: seconds to wait for them.
        """
        wait = rpcs.RoomWait(rooms, group)
        attempts = Attempts(self._retry, timeout)
        while not wait.over:
            call = self._stub.WaitDpRanks(wait.request(), timeout=attempts.time_left())
            try:
                async for message in call:
                    attempts.progressed()
                    for room in wait.receive(message):
                        yield room
                return
            except grpc.RpcError as error:
                failure = error_of(error, self.address)
                if isinstance(failure, DeadlineError):
                    return
                pause = attempts.pause_after(failure)
            except asyncio.CancelledError:
                raise_if_closed(self.address)
                raise
            finally:
                call.cancel()
            await asyncio.sleep(pause)
