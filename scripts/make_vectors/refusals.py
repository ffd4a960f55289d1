"""`errors.json` and `errors/*.bin`: refusals as a client receives them, from real servers with a fixed clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess import PreprocessSettings, add_preprocess
from scripts.make_vectors.files import Files, canonical_json, json_file
from scripts.make_vectors.messages import LAYOUT, STARTED_AT

NOW = STARTED_AT + 1_000_000_000
"""The servers' clock, in Unix nanoseconds. It stands still, so that revisions are the same each time."""

STATUS_TRAILER = "grpc-status-details-bin"
SIZES = pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1)
LAUNCH = pb.Instance(id="launch-2", started_at=STARTED_AT)


@dataclass(frozen=True)
class Servers:
    """Both services, called by their stubs."""

    bootstrap: BootstrapServiceStub
    preprocess: PreprocessServiceStub


@asynccontextmanager
async def running(settings: BootstrapSettings) -> AsyncIterator[Servers]:
    """Both services on one port of this machine, in memory."""
    server = Server(ServerSettings(port=0))
    add_bootstrap(server, settings, clock=lambda: NOW)
    preprocess = add_preprocess(server, PreprocessSettings())
    port = await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Servers(BootstrapServiceStub(channel), PreprocessServiceStub(channel))
    finally:
        await server.stop(0)
        await preprocess.close()


def refusal_files() -> Files:
    received = asyncio.run(_received())
    files = {f"errors/{name}.bin": status for name, (_, status) in received.items()}
    entries = [_entry(name, about, status) for name, (about, status) in received.items()]
    return {"errors.json": json_file(entries), **files}


def _entry(name: str, about: str, received: bytes) -> dict[str, Any]:
    status = status_pb2.Status.FromString(received)
    entry: dict[str, Any] = {
        "about": about,
        "status": f"errors/{name}.bin",
        "code": status.code,
        "code_name": code_pb2.Code.Name(status.code),
        "message": status.message,
        "details": [],
    }
    for packed in status.details:
        detail = _KINDS[packed.TypeName()]()
        packed.Unpack(detail)
        entry["details"].append({"type": packed.TypeName(), "json": canonical_json(detail)})
    return entry


_KINDS: dict[str, type[Message]] = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
        errors_pb2.RevisionConflict,
        errors_pb2.ContractMismatch,
        errors_pb2.StaleInstance,
        errors_pb2.StaleIncarnation,
        errors_pb2.NotReady,
    )
}


async def _received() -> dict[str, tuple[str, bytes]]:
    """What each call is about, and the status in its trailers, by a name for the file."""
    async with running(BootstrapSettings(store="memory", max_groups=3, max_rooms=2)) as servers:
        return {name: (about, await _refused(call(servers))) for name, about, call in _CALLS}


async def _refused(call: Awaitable[Any]) -> bytes:
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        status: bytes = trailers[STATUS_TRAILER]
        return status
    raise AssertionError(f"it was served: {answer}")


def _route(tp: int = 0, incarnation: int = 100, **changes: Any) -> pb.Route:
    values: dict[str, Any] = {
        "key": pb.RankKey(tp=tp),
        "incarnation": incarnation,
        "sizes": SIZES,
        "rank_ip": "2001:db8::1",
        "rank_port": 30_000 + tp,
        "page_size": 64,
        "kv_cache_dtype": "fp8_e4m3",
    }
    return pb.Route(**{**values, **changes})


async def _register(
    servers: Servers,
    route: pb.Route | None = None,
    group: str = "",
    instance: pb.Instance = LAUNCH,
    expected_revision: int | None = None,
    lease_ttl: Duration | None = None,
) -> pb.RegisterRouteResponse:
    return await servers.bootstrap.RegisterRoute(
        pb.RegisterRouteRequest(
            group=group,
            route=route or _route(),
            instance=instance,
            expected_revision=expected_revision,
            lease_ttl=lease_ttl,
        )
    )


async def _conflict(servers: Servers) -> object:
    await _register(servers)
    return await _register(servers, _route(incarnation=101), expected_revision=0)


async def _large_conflict(servers: Servers) -> object:
    layout = type(LAYOUT)(kv_item_lens=range(2**40, 2**40 + 500))
    await _register(servers, _route(dsv41_spec_layout={"layout": layout}), "layouts")
    return await _register(servers, group="layouts", expected_revision=0)


async def _mismatch(servers: Servers) -> object:
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=4, pp=1)
    return await _register(servers, _route(1, page_size=128, kv_cache_dtype="bfloat16", sizes=sizes))


async def _stale_incarnation(servers: Servers) -> object:
    return await _register(servers, _route(incarnation=99))


async def _deregistered(servers: Servers) -> object:
    gone = pb.DeregisterRouteRequest(group="layouts", key=pb.RankKey(), instance=LAUNCH, incarnation=100)
    await servers.bootstrap.DeregisterRoute(gone)
    return await _register(servers, group="layouts")


async def _too_many_groups(servers: Servers) -> object:
    await _register(servers, group="third")
    return await _register(servers, group="fourth")


async def _many_faults(servers: Servers) -> object:
    route = pb.Route(rank_ip="fe80::1%eth0", pools=[1, 1, 99])
    return await servers.bootstrap.RegisterRoute(pb.RegisterRouteRequest(group="Not-A-Label", route=route))


async def _many_ranks(servers: Servers) -> object:
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=512, pp=1)
    later = pb.Instance(id="launch-3", started_at=STARTED_AT + 1)
    await _register(servers, _route(sizes=sizes), instance=later)
    return await servers.bootstrap.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest())


def _assignments(*rooms: int) -> pb.RegisterDpRanksRequest:
    return pb.RegisterDpRanksRequest(assignments=[pb.RoomAssignment(room=room) for room in rooms])


async def _picture(servers: Servers, request: pp.PreprocessImageRequest) -> object:
    return [frame async for frame in servers.preprocess.PreprocessImage(request)]


Call = Callable[[Servers], Awaitable[object]]

_CALLS: tuple[tuple[str, str, Call], ...] = (
    ("revision_conflict", "RegisterRoute loses a race; the detail has the route that stands", _conflict),
    ("revision_conflict_large", "the same, where the standing route's layout is too large", _large_conflict),
    ("contract_mismatch", "RegisterRoute with three values that differ from the group's", _mismatch),
    (
        "stale_instance",
        "RegisterRoute of an older launch",
        lambda servers: _register(servers, instance=pb.Instance(id="launch-1", started_at=STARTED_AT)),
    ),
    ("stale_incarnation", "RegisterRoute of an older life of a rank", _stale_incarnation),
    ("stale_incarnation_deregistered", "RegisterRoute of a life that was deregistered", _deregistered),
    ("invalid_fields", "RegisterRoute with many faults: all are named at once", _many_faults),
    (
        "not_ready",
        "GetPrefillServerInfo while a rank is missing",
        lambda servers: servers.bootstrap.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest()),
    ),
    ("not_ready_many", "the same while 511 ranks are missing: 64 are listed", _many_ranks),
    (
        "unknown_group",
        "GetRankInfo of a group where no rank ever registered",
        lambda servers: servers.bootstrap.GetRankInfo(pb.GetRankInfoRequest(group="nobody", key=pb.RankKey())),
    ),
    (
        "unknown_rank",
        "GetRankInfo of a rank outside of the group's sizes",
        lambda servers: servers.bootstrap.GetRankInfo(pb.GetRankInfoRequest(key=pb.RankKey(dp=7))),
    ),
    ("too_many_groups", "RegisterRoute in one group more than the server keeps", _too_many_groups),
    (
        "too_many_rooms",
        "RegisterDpRanks of more rooms than the server keeps; it says when to try again",
        lambda servers: servers.bootstrap.RegisterDpRanks(_assignments(2**53 + 1, 2**63, 2**64 - 1)),
    ),
    (
        "unknown_profile",
        "PreprocessImage under a profile that is not served",
        lambda servers: _picture(servers, pp.PreprocessImageRequest(encoded=b"x", profile={"name": "nobody's"})),
    ),
    (
        "image_unrecognized",
        "PreprocessImage of what is no picture",
        lambda servers: _picture(servers, pp.PreprocessImageRequest(encoded=b"hello")),
    ),
    (
        "source_length_mismatch",
        "PreprocessImage of raw pixels, a byte short",
        lambda servers: _picture(servers, pp.PreprocessImageRequest(raw=pp.RawRgb(width=2, height=1, data=bytes(5)))),
    ),
    (
        "shared_memory_off",
        "RegisterRegion at a server that shares no memory",
        lambda servers: servers.preprocess.RegisterRegion(pp.RegisterRegionRequest(file_name="patches", size=4096)),
    ),
)
