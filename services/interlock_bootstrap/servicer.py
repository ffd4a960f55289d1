"""The Bootstrap service's RPCs. Each reads: decode the request, apply the rule, encode the answer."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.duration_pb2 import Duration

from interlock.bootstrap.v1 import bootstrap_pb2, bootstrap_service_pb2_grpc
from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.serving.access import current_caller
from interlock.topology import Topology, check_compatibility, prefill_server_info
from interlock.topology.messages import (
    group_state_to_message,
    incompatibility_to_message,
    instance_to_message,
    prefill_server_info_to_message,
)
from interlock.topology.request_messages import (
    check_compatibility_from_message,
    deregister_route_from_message,
    force_epoch_from_message,
    get_rank_info_from_message,
    group_from_message,
    keep_alive_from_message,
    register_route_from_message,
)
from interlock_bootstrap.pages import page_token, parse_page
from interlock_bootstrap.refusals import decoded, draining, invalid_field, not_ready, unknown_rank
from interlock_bootstrap.registry import LONGEST_WAIT, Registry
from interlock_bootstrap.reminders import Reminders
from interlock_bootstrap.rooms import Rooms
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores import Lease, Store
from interlock_bootstrap.watch_messages import Snapshots, progress_message

if TYPE_CHECKING:
    import grpc.aio

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

MAX_ROOMS_A_CALL = 10_000
"""Rooms that one call may name, as the proto says."""

WAIT_MARGIN = 0.2
"""Seconds before the caller's deadline at which WaitDpRanks sends its last message, so that it still arrives."""


class BootstrapServicer(bootstrap_service_pb2_grpc.BootstrapServiceServicer):
    """Serves `interlock.bootstrap.v1.BootstrapService` from a store of topologies and rooms."""

    def __init__(self, store: Store, registry: Registry, rooms: Rooms, settings: BootstrapSettings) -> None:
        self._store = store
        self._registry = registry
        self._rooms = rooms
        self._settings = settings
        self.watchers = 0
        """Watches that are open."""
        self._snapshots = Snapshots()
        self._reminders = Reminders(settings.progress_seconds)
        self._keep_alives: set[asyncio.Timeout] = set()
        self._draining = False
        self._answered: Topology | None = None
        self._answers: dict[int | None, bytes] = {}
        """What those are answered who registered in the commit of `_answered`, by the TTL of their lease."""

    # Registration

    async def RegisterRoute(  # type: ignore[override]  # serialised once for all who share a commit
        self, request: bootstrap_pb2.RegisterRouteRequest, context: "Context"
    ) -> bytes:
        group, register = decoded(register_route_from_message, request)
        return self._registered((await self._registry.change(group, register)).topology, register.lease_ttl)

    def _registered(self, topology: Topology, lease_ttl: int | None) -> bytes:
        if self._answered is not topology:
            self._answered = topology
            self._answers = {}
        answer = self._answers.get(lease_ttl)
        if answer is None:
            answer = self._answers[lease_ttl] = bootstrap_pb2.RegisterRouteResponse(
                revision=topology.revision,
                epoch=topology.epoch,
                registered=topology.registered,
                expected=topology.expected,
                ready=topology.ready,
                lease=None if lease_ttl is None else bootstrap_pb2.Lease(ttl=_duration(lease_ttl)),
            ).SerializeToString()
        return answer

    async def DeregisterRoute(
        self, request: bootstrap_pb2.DeregisterRouteRequest, context: "Context"
    ) -> bootstrap_pb2.DeregisterRouteResponse:
        group, deregister = decoded(deregister_route_from_message, request)
        outcome = await self._registry.change(group, deregister)
        return bootstrap_pb2.DeregisterRouteResponse(
            removed=outcome.removed_routes > 0, revision=outcome.topology.revision
        )

    async def KeepAlive(  # type: ignore[override]  # writes to the context itself, so that draining can end its waiting
        self, request_iterator: AsyncIterator[bootstrap_pb2.KeepAliveRequest], context: "Context"
    ) -> None:
        try:
            async with asyncio.timeout(None) as patience:
                self._keep_alives.add(patience)
                if self._draining:
                    raise draining()
                async for request in request_iterator:
                    await context.write(await self._renewed(request))
        except TimeoutError:
            raise draining() from None
        finally:
            self._keep_alives.discard(patience)

    async def _renewed(self, request: bootstrap_pb2.KeepAliveRequest) -> bootstrap_pb2.KeepAliveResponse:
        leases = decoded(keep_alive_from_message, request)
        by_group: dict[str, list[Lease]] = {}
        for group, key, instance, incarnation in leases:
            by_group.setdefault(group, []).append(Lease(key, instance, incarnation))
        ttls = {group: iter(await self._registry.renew(group, named)) for group, named in by_group.items()}
        return bootstrap_pb2.KeepAliveResponse(
            renewals=[
                bootstrap_pb2.LeaseRenewal(lease=named, ttl=_duration(next(ttls[group])))
                for named, (group, *_) in zip(request.leases, leases, strict=True)
            ]
        )

    def end_keep_alives(self) -> None:
        """Sends those who renew leases elsewhere: the server is about to stop."""
        self._draining = True
        for patience in self._keep_alives:
            patience.reschedule(asyncio.get_running_loop().time())

    async def ForceEpoch(
        self, request: bootstrap_pb2.ForceEpochRequest, context: "Context"
    ) -> bootstrap_pb2.ForceEpochResponse:
        group, force_epoch = decoded(force_epoch_from_message, request)
        await self._registry.read(group)
        outcome = await self._registry.change(group, force_epoch)
        return bootstrap_pb2.ForceEpochResponse(
            revision=outcome.topology.revision, epoch=outcome.topology.epoch, dropped_routes=outcome.removed_routes
        )

    # Reads

    async def GetPrefillServerInfo(
        self, request: bootstrap_pb2.GetPrefillServerInfoRequest, context: "Context"
    ) -> bootstrap_pb2.GetPrefillServerInfoResponse:
        topology = await self._read(decoded(group_from_message, request), request, context)
        if not topology.ready or topology.instance is None:
            raise not_ready(topology)
        return bootstrap_pb2.GetPrefillServerInfoResponse(
            info=prefill_server_info_to_message(prefill_server_info(topology)),
            revision=topology.revision,
            epoch=topology.epoch,
            instance=instance_to_message(topology.instance),
        )

    async def GetRankInfo(
        self, request: bootstrap_pb2.GetRankInfoRequest, context: "Context"
    ) -> bootstrap_pb2.GetRankInfoResponse:
        """Also while the group is not ready: a rank that restarts must not cut off its neighbours."""
        group, key = decoded(get_rank_info_from_message, request)
        topology = await self._read(group, request, context)
        route = topology.routes.get(key)
        if route is None:
            raise (
                not_ready(topology) if topology.sizes is None or topology.expects(key) else unknown_rank(topology, key)
            )
        return bootstrap_pb2.GetRankInfoResponse(
            rank_ip=route.rank_ip, rank_port=route.rank_port, revision=topology.revision, epoch=topology.epoch
        )

    async def ListGroups(
        self, request: bootstrap_pb2.ListGroupsRequest, context: "Context"
    ) -> bootstrap_pb2.ListGroupsResponse:
        after, size = parse_page(request.page_token, request.page_size)
        topologies = await self._visible_groups(after, size + 1)
        response = bootstrap_pb2.ListGroupsResponse(groups=map(group_state_to_message, topologies[:size]))
        if len(topologies) > size:
            response.next_page_token = page_token(topologies[size - 1].group)
        return response

    async def _visible_groups(self, after: str, limit: int) -> list[Topology]:
        """Those that the caller may see."""
        caller, visible = current_caller(), list[Topology]()
        while len(visible) < limit and (page := await self._store.groups(after, limit)):
            visible += (topology for topology in page if caller.may_see(topology.group))
            after = page[-1].group
        return visible[:limit]

    async def CheckCompatibility(
        self, request: bootstrap_pb2.CheckCompatibilityRequest, context: "Context"
    ) -> bootstrap_pb2.CheckCompatibilityResponse:
        group, decode_server = decoded(check_compatibility_from_message, request)
        topology = await self._read(group, request, context)
        return bootstrap_pb2.CheckCompatibilityResponse(
            incompatibilities=map(incompatibility_to_message, check_compatibility(topology, decode_server)),
            ready=topology.ready,
            revision=topology.revision,
            epoch=topology.epoch,
        )

    async def _read(
        self,
        group: str,
        request: (
            bootstrap_pb2.GetPrefillServerInfoRequest
            | bootstrap_pb2.GetRankInfoRequest
            | bootstrap_pb2.CheckCompatibilityRequest
        ),
        context: "Context",
    ) -> Topology:
        min_revision = request.min_revision if request.HasField("min_revision") else None
        return await self._registry.read(group, min_revision, context.time_remaining())

    # Watch

    async def WatchTopology(  # type: ignore[override]  # most messages are serialised once for all watchers
        self, request: bootstrap_pb2.WatchTopologyRequest, context: "Context"
    ) -> AsyncIterator[bootstrap_pb2.WatchTopologyResponse | bytes]:
        group = decoded(group_from_message, request)
        with (
            self._one_more_watcher(),
            self._registry.follow(group) as watch,
            self._reminders.each_period(watch.remind),
        ):
            seen = watch.current
            if request.HasField("after_revision") and request.after_revision == seen.revision:
                yield progress_message(seen)
            else:
                for message in self._snapshots.messages(seen):
                    yield message
            while True:
                news = await watch.next()
                if news is None:
                    yield progress_message(seen)
                elif isinstance(news, Topology):
                    seen = news
                    for message in self._snapshots.messages(news):
                        yield message
                else:
                    seen = news.after
                    for message in news.messages:
                        yield message

    @contextmanager
    def _one_more_watcher(self) -> Iterator[None]:
        if self.watchers >= self._settings.max_watchers:
            raise Refusal(
                Reason.OVERLOADED,
                f"{self.watchers} watches are open already, as many as this server allows",
                metadata={"max_watchers": str(self._settings.max_watchers)},
                retry_delay=1.0,
            )
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1

    # Rooms

    async def RegisterDpRanks(
        self, request: bootstrap_pb2.RegisterDpRanksRequest, context: "Context"
    ) -> bootstrap_pb2.RegisterDpRanksResponse:
        group = decoded(group_from_message, request)
        _check_room_count("assignments", len(request.assignments))
        topology = await self._registry.read(group)
        _check_dp_ranks(request.assignments, topology)
        dp_ranks = {assignment.room: assignment.dp_rank for assignment in request.assignments}
        with self._rooms.space(group, topology.epoch, dp_ranks):
            registered, overwritten = await self._store.register_rooms(group, topology.epoch, dp_ranks)
        return bootstrap_pb2.RegisterDpRanksResponse(registered=registered, overwritten=overwritten)

    async def QueryDpRanks(
        self, request: bootstrap_pb2.QueryDpRanksRequest, context: "Context"
    ) -> bootstrap_pb2.QueryDpRanksResponse:
        group = decoded(group_from_message, request)
        _check_room_count("rooms", len(request.rooms))
        topology = await self._store.load(group)
        known = self._rooms.query(group, topology.epoch, request.rooms)
        return bootstrap_pb2.QueryDpRanksResponse(assignments=_assignments(known))

    async def WaitDpRanks(
        self, request: bootstrap_pb2.WaitDpRanksRequest, context: "Context"
    ) -> AsyncIterator[bootstrap_pb2.WaitDpRanksResponse]:
        group = decoded(group_from_message, request)
        _check_room_count("rooms", len(request.rooms))
        topology = await self._store.load(group)
        with self._rooms.wait(group, topology.epoch, request.rooms) as wait:
            deadline = asyncio.get_running_loop().time() + _patience(context.time_remaining())
            while wait.unknown:
                try:
                    async with asyncio.timeout_at(deadline):
                        found = await wait.next()
                except TimeoutError:
                    break
                yield bootstrap_pb2.WaitDpRanksResponse(assignments=_assignments(found))
            yield bootstrap_pb2.WaitDpRanksResponse(
                assignments=_assignments(wait.take()), unknown_rooms=sorted(wait.unknown), last=True
            )


def _assignments(dp_ranks: Mapping[int, int]) -> list[bootstrap_pb2.RoomAssignment]:
    return [bootstrap_pb2.RoomAssignment(room=room, dp_rank=dp_rank) for room, dp_rank in dp_ranks.items()]


def _duration(milliseconds: int) -> Duration:
    return Duration(seconds=milliseconds // 1_000, nanos=milliseconds % 1_000 * 1_000_000)


def _check_room_count(field: str, count: int) -> None:
    if count > MAX_ROOMS_A_CALL:
        raise invalid_field(field, f"has {count} rooms; at most {MAX_ROOMS_A_CALL} a call")


def _check_dp_ranks(assignments: Iterable[bootstrap_pb2.RoomAssignment], topology: Topology) -> None:
    """Every DP rank is below the group's DP size, if a live route says how large that is."""
    sizes = topology.sizes
    if sizes is None:
        return
    for index, assignment in enumerate(assignments):
        if assignment.dp_rank >= sizes.dp:
            raise invalid_field(
                f"assignments[{index}].dp_rank",
                f"is {assignment.dp_rank}; the group has DP size {sizes.dp}, so it must be below that",
            )


def _patience(time_remaining: float | None) -> float:
    """Seconds to wait for rooms: until shortly before the caller's deadline."""
    return LONGEST_WAIT if time_remaining is None else max(0.0, time_remaining - WAIT_MARGIN)
