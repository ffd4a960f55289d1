"""The Bootstrap clients against the real service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest

from client.scripted import PATIENCE, QUICK, Face
from interlock.client import (
    AsyncBootstrapClient,
    BootstrapClient,
    ContractMismatchError,
    DpRanksRegistered,
    FieldDifference,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RevisionConflictError,
    StaleIncarnationError,
    StaleInstanceError,
    WatchChange,
    WatchProgress,
    WatchSnapshot,
)
from interlock.kv.v1.pool_name_pb2 import POOL_NAME_KV, POOL_NAME_SWA
from interlock.serving import Server, ServerSettings
from interlock.topology import (
    DecodeServer,
    EpochStarted,
    Instance,
    ParallelSizes,
    RankKey,
    Route,
    RouteRegistered,
    RouteRemoved,
    SpecLayout,
)
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings

LAUNCH = Instance("launch", 1_000)
LATER = Instance("later", 2_000)


@dataclass(frozen=True)
class Running:
    address: str
    server: Server


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts Bootstrap services; stops them afterwards."""
    started: list[Server] = []

    async def start_one(port: int = 0) -> Running:
        server = Server(ServerSettings(port=port))
        add_bootstrap(server, BootstrapSettings(progress_seconds=0.05))
        started.append(server)
        return Running(f"127.0.0.1:{await server.start()}", server)

    yield start_one
    for server in started:
        await server.stop(0)


@pytest.fixture
async def address(start: Start) -> str:
    return (await start()).address


def route(tp: int, size: int = 2, **changes: object) -> Route:
    return replace(
        Route(
            key=RankKey(0, 0, tp, 0),
            incarnation=7,
            sizes=ParallelSizes(1, 1, size, 1),
            rank_ip="10.0.0.1",
            rank_port=9000 + tp,
            page_size=64,
            kv_cache_dtype="bfloat16",
            pools=(POOL_NAME_KV, POOL_NAME_SWA),
            dsv41_spec_layout=SpecLayout(num_draft_tokens=3, kv_item_lens=(2**40,), extra_json=(("new", "[1,2]"),)),
            prefill_http_port=8000 + tp,
        ),
        **changes,
    )


async def test_two_ranks_register_a_third_is_refused_and_a_decode_server_asks(face: Face, address: str) -> None:
    async def ask(method: str, *args: object, **kwargs: object) -> object:
        return await face.acall(face.bootstrap(address), method, *args, **kwargs)

    first = await ask("register_route", route(0), LAUNCH, expected_revision=0)
    assert (first.epoch, first.registered, first.expected, first.ready) == (1, 1, 2, False)
    with pytest.raises(NotReadyError) as not_ready:
        await ask("get_prefill_server_info")
    assert not_ready.value.state.missing_keys == (RankKey(0, 0, 1, 0),)

    with pytest.raises(ContractMismatchError) as mismatch:
        await ask("register_route", route(1, page_size=128), LAUNCH)
    assert mismatch.value.mismatch.differences == (FieldDifference("page_size", "64", "128", RankKey(0, 0, 0, 0)),)

    second = await ask("register_route", route(1), LAUNCH, expected_revision=first.revision)
    assert second.ready
    assert second.revision > first.revision
    assert await ask("register_route", route(1), LAUNCH, expected_revision=first.revision) == second

    group = await ask("get_prefill_server_info", min_revision=second.revision)
    assert (group.revision, group.epoch, group.instance) == (second.revision, 1, LAUNCH)
    assert (group.info.sizes, group.info.page_size) == (ParallelSizes(1, 1, 2, 1), 64)
    assert group.info.dsv41_spec_layout == route(0).dsv41_spec_layout
    assert group.info.pools == (POOL_NAME_KV, POOL_NAME_SWA)
    assert group.info.prefill_http_port == 8000

    info = await ask("get_rank_info", RankKey(0, 0, 1, 0))
    assert (info.rank_ip, info.rank_port, info.revision, info.epoch) == ("10.0.0.1", 9001, second.revision, 1)

    decode = DecodeServer(128, ParallelSizes(1, 1, 2, 1), dsv41_spec_layout=route(0).dsv41_spec_layout)
    fit = await ask("check_compatibility", decode)
    assert ([one.field for one in fit.incompatibilities], fit.ready) == (["page_size"], True)
    assert (await ask("check_compatibility", replace(decode, page_size=64))).incompatibilities == ()

    assert not (await ask("deregister_route", RankKey(0, 0, 1, 0), LAUNCH, 6)).removed
    assert (await ask("deregister_route", RankKey(0, 0, 1, 0), LAUNCH, 7)).removed
    with pytest.raises(StaleIncarnationError) as gone:
        await ask("register_route", route(1), LAUNCH)
    assert (gone.value.stale.newest_incarnation, gone.value.stale.deregistered) == (7, True)

    assert (await ask("register_route", route(0), LATER)).epoch == 2
    with pytest.raises(StaleInstanceError) as stale:
        await ask("register_route", route(1), LAUNCH)
    assert stale.value.floor == LATER
    forced = await ask("force_epoch", floor=LAUNCH)
    assert (forced.epoch, forced.dropped_routes) == (3, 1)
    assert (await ask("register_route", route(0), LAUNCH)).registered == 1


async def test_every_faulty_field_is_named(face: Face, address: str) -> None:
    bad = route(5, rank_ip="0.0.0.0", rank_port=0, page_size=0)
    with pytest.raises(InvalidRequestError) as raised:
        await face.acall(face.bootstrap(address), "register_route", bad, LAUNCH, group="Not A Label")
    fields = {field for field, _ in raised.value.field_violations}
    assert fields == {"group", "route.key.tp", "route.rank_ip", "route.rank_port", "route.page_size"}
    assert all(field in raised.value.diagnostics() for field in fields)


async def test_a_group_that_nobody_knows(face: Face, address: str) -> None:
    with pytest.raises(NotFoundError):
        await face.acall(face.bootstrap(address), "get_prefill_server_info", "nobody")


async def test_a_decode_server_may_wait_before_any_rank_has_come(face: Face, address: str) -> None:
    client = face.bootstrap(address)
    waiting = asyncio.create_task(face.acall(client, "get_prefill_server_info", wait=True, timeout=PATIENCE))
    async with AsyncBootstrapClient(address) as ranks:
        await ranks.register_route(route(0), LAUNCH)
        await ranks.register_route(route(1), LAUNCH)
    assert (await waiting).info.page_size == 64


async def test_groups_are_listed_over_all_pages(face: Face, address: str) -> None:
    names = [f"group-{number:03}" for number in range(205)]
    async with AsyncBootstrapClient(address) as client:
        await asyncio.gather(*(client.register_route(route(0), LAUNCH, group=name) for name in names))
    states = await face.atake(None, face.bootstrap(address), "list_groups")
    assert [state.group for state in states] == names
    assert {(state.registered, state.expected, state.ready) for state in states} == {(1, 2, False)}


async def test_a_watch_follows_what_ranks_do(address: str) -> None:
    async with AsyncBootstrapClient(address) as client:
        items = aiter(client.watch_topology("prefill"))

        async def next_news() -> WatchSnapshot | WatchChange:
            while isinstance(item := await anext(items), WatchProgress):
                pass
            return item

        empty = await next_news()
        assert (empty.state.revision, len(empty.routes)) == (0, 0)
        registered = await client.register_route(route(0), LAUNCH, group="prefill")
        first = await next_news()
        assert first.events == (EpochStarted(1, LAUNCH), RouteRegistered(route(0)))
        assert (first.state.revision, dict(first.routes)) == (registered.revision, {route(0).key: route(0)})
        await client.register_route(route(0, incarnation=8), LAUNCH, group="prefill")
        assert (await next_news()).events == (RouteRegistered(route(0, incarnation=8)),)
        await client.deregister_route(route(0).key, LAUNCH, 8, group="prefill")
        last = await next_news()
        assert last.events == (RouteRemoved(route(0).key, 8),)
        assert (len(last.routes), last.state.registered) == (0, 0)
        assert isinstance(await anext(items), WatchProgress)
        await items.aclose()


async def test_a_watch_outlives_its_server(start: Start) -> None:
    first = await start()
    address = first.address
    async with AsyncBootstrapClient(address, retry=QUICK) as client:
        await client.register_route(route(0), LAUNCH)
        items = aiter(client.watch_topology())
        before = await anext(items)
        assert before.state.registered == 1
        await first.server.stop(0)
        await start(int(address.rpartition(":")[2]))
        async with asyncio.timeout(PATIENCE):
            while not isinstance(after := await anext(items), WatchSnapshot):
                pass
        # The new server knows nothing, and the watch says so: the state, and no events.
        assert (after.state.registered, len(after.routes)) == (0, 0)
        await client.register_route(route(1), LAUNCH)
        async with asyncio.timeout(PATIENCE):
            while not isinstance(change := await anext(items), WatchChange):
                pass
        assert dict(change.routes) == {route(1).key: route(1)}
        await items.aclose()


async def test_many_threads_race_by_compare_and_swap_and_all_stand(address: str) -> None:
    ranks = 16

    def register(tp: int) -> int:
        with BootstrapClient(address) as client:
            revision = 0
            while True:
                try:
                    return client.register_route(route(tp, ranks), LAUNCH, expected_revision=revision).revision
                except RevisionConflictError as error:
                    revision = error.conflict.revision

    with ThreadPoolExecutor(ranks) as pool:
        revisions = await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(pool, register, tp) for tp in range(ranks))
        )
    assert len(set(revisions)) == ranks
    async with AsyncBootstrapClient(address) as client:
        assert (await client.get_prefill_server_info()).revision == max(revisions)


async def test_rooms_find_their_ranks(face: Face, address: str) -> None:
    async with AsyncBootstrapClient(address) as prefill:
        await prefill.register_route(route(0, sizes=ParallelSizes(4, 1, 1, 1)), LAUNCH)
        client = face.bootstrap(address)
        waiting = asyncio.create_task(face.atake(None, client, "wait_dp_ranks", [1, 2, 2**64 - 1], timeout=PATIENCE))
        assert await prefill.register_dp_ranks({1: 3, 2: 0}) == DpRanksRegistered(2, 0)
        assert await prefill.register_dp_ranks({2: 1, 2**64 - 1: 2}) == DpRanksRegistered(1, 1)
        found = await waiting
        assert {room for room, _ in found} == {1, 2, 2**64 - 1}
        known = {1: 3, 2: 1, 2**64 - 1: 2}
        assert await face.acall(face.bootstrap(address), "query_dp_ranks", [1, 2, 9, 2**64 - 1]) == known
        late = await face.atake(None, face.bootstrap(address), "wait_dp_ranks", [1, 9], timeout=0.5)
        assert late == [(1, 3)]
        with pytest.raises(InvalidRequestError) as raised:
            await face.acall(face.bootstrap(address), "register_dp_ranks", {5: 4})
        assert raised.value.field_violations[0][0] == "assignments[0].dp_rank"
