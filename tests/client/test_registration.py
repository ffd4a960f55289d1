"""Ranks that are kept registered, against the real service."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest

from client.keeping import client_of, entered, lost, registered, until, until_state
from client.scripted import PATIENCE, Face, SyncFace
from interlock.client import (
    AsyncBootstrapClient,
    ContractMismatchError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RegistrationState,
    StaleIncarnationError,
    StaleInstanceError,
    WatchChange,
)
from interlock.serving import Server, ServerSettings
from interlock.topology import Instance, InvalidFieldsError, ParallelSizes, RankKey, Route, RouteRemoved
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings

LAUNCH = Instance("launch", 1_000)
LATER = Instance("later", 2_000)


@dataclass(frozen=True)
class Running:
    address: str
    server: Server

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts Bootstrap services on memory stores; stops them afterwards."""
    started: list[Server] = []

    async def start_one(port: int = 0) -> Running:
        server = Server(ServerSettings(port=port))
        add_bootstrap(server, BootstrapSettings())
        started.append(server)
        return Running(f"127.0.0.1:{await server.start()}", server)

    yield start_one
    for server in started:
        await server.stop(0)


@pytest.fixture
async def other(running: Running) -> AsyncIterator[AsyncBootstrapClient]:
    """Somebody else's client of the same service."""
    async with AsyncBootstrapClient(running.address) as client:
        yield client


@pytest.fixture
async def running(start: Start) -> Running:
    return await start()


def route(tp: int, size: int = 2, **changes: object) -> Route:
    whole = Route(RankKey(0, 0, tp, 0), 7, ParallelSizes(1, 1, size, 1), "10.0.0.1", 9000 + tp, page_size=64)
    return replace(whole, **changes)


async def state_of(client: AsyncBootstrapClient, group: str = "default") -> tuple[int, int]:
    """How many routes live in a group, and in which epoch."""
    async for found in client.list_groups():
        if found.group == group:
            return found.registered, found.epoch
    return 0, 0


async def test_a_rank_is_registered_inside_the_block_and_not_after_it(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    async with client_of(face, running.address) as client:
        async with registered(client, route(0), LAUNCH, group="prefill") as registration:
            found = await other.get_rank_info(route(0).key, group="prefill")
            assert (registration.revision, registration.registered.epoch) == (found.revision, found.epoch)
            assert registration.state is RegistrationState.REGISTERED
            assert (registration.key, registration.group, registration.instance) == (route(0).key, "prefill", LAUNCH)
            assert registration.error is None
            registration.check()
        assert registration.state is RegistrationState.ENDED
        registration.check()
        assert await state_of(other, "prefill") == (0, 1)
        assert await lost(registration) is None


async def test_it_stays_while_leases_that_nobody_renews_come_and_go(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    async with (
        client_of(face, running.address) as client,
        registered(client, route(0), LAUNCH, lease_ttl=2) as registration,
    ):
        items = aiter(other.watch_topology(timeout=PATIENCE))
        removed = []
        for incarnation in (1, 2):
            await other.register_route(route(1, incarnation=incarnation), LAUNCH, lease_ttl=1)
            while not removed or removed[-1] != RouteRemoved(route(1).key, incarnation):
                if isinstance(item := await anext(items), WatchChange):
                    removed += [event for event in item.events if isinstance(event, RouteRemoved)]
        assert [event.key for event in removed] == [route(1).key] * 2
        await until_state(registration, RegistrationState.REGISTERED)
        assert (await other.get_rank_info(route(0).key)).rank_port == 9000
        await items.aclose()


async def test_a_rank_whose_process_died_goes_when_its_lease_runs_out(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    async with client_of(face, running.address) as client:
        kept = client.registration(route(0), LAUNCH, lease_ttl=1)
        await entered(kept)
    # The client is gone without leaving the block.
    assert kept.state is RegistrationState.ENDED
    async for item in other.watch_topology(timeout=PATIENCE):
        if isinstance(item, WatchChange):
            assert item.events == (RouteRemoved(route(0).key, 7),)
            break


async def test_a_dropped_rank_registers_again(face: Face, running: Running, other: AsyncBootstrapClient) -> None:
    async with (
        client_of(face, running.address) as client,
        registered(client, route(0), LAUNCH, lease_ttl=1) as registration,
    ):
        before = registration.revision
        await other.force_epoch()
        await until(lambda: registration.revision > before)
        assert (registration.state, registration.registered.epoch) == (RegistrationState.REGISTERED, 3)
        assert (await other.get_rank_info(route(0).key)).revision == registration.revision


async def test_all_ranks_come_back_to_a_server_that_lost_everything(face: Face, start: Start) -> None:
    first = await start()
    async with client_of(face, first.address) as client, AsyncExitStack() as ranks:
        # Leases of an hour: what brings them back is the connection, not their time.
        kept = [
            await ranks.enter_async_context(registered(client, route(tp, 3), LAUNCH, lease_ttl=3_600))
            for tp in range(3)
        ]
        await first.server.stop(0)
        await until(lambda: all(one.state is RegistrationState.RECOVERING for one in kept))
        assert all(one.error is not None for one in kept)
        await start(first.port)
        async with AsyncBootstrapClient(first.address) as other:
            group = await other.get_prefill_server_info(wait=True, timeout=PATIENCE)
        await until(lambda: all(one.state is RegistrationState.REGISTERED for one in kept))
        assert max(one.revision for one in kept) == group.revision
        assert [one.error for one in kept] == [None] * 3


async def test_when_one_server_drains_they_go_on_at_another(face: Face, start: Start) -> None:
    first, second = await start(), await start()
    both = f"ipv4:{first.address},{second.address}"
    async with client_of(face, both) as client, AsyncBootstrapClient(second.address) as other:
        async with (
            registered(client, route(0), LAUNCH, lease_ttl=3_600),
            registered(client, route(1), LAUNCH, lease_ttl=3_600),
        ):
            with pytest.raises(NotFoundError):
                await other.get_prefill_server_info()
            stopping = asyncio.create_task(first.server.stop(PATIENCE))
            assert (await other.get_prefill_server_info(wait=True, timeout=PATIENCE)).instance == LAUNCH
            await stopping  # that nobody kept waiting: the stream was let go at once
        with pytest.raises(NotReadyError):
            await other.get_prefill_server_info()


async def test_a_newer_launch_ends_the_registration_and_says_so(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    async with client_of(face, running.address) as client:
        with pytest.raises(StaleInstanceError) as raised:  # noqa: PT012 - leaving the block raises
            async with registered(client, route(0), LAUNCH, lease_ttl=1) as registration:
                await other.register_route(route(0, incarnation=8), LATER)
                error = await lost(registration)
                assert (registration.state, registration.error) == (RegistrationState.LOST, error)
                with pytest.raises(StaleInstanceError):
                    registration.check()
        assert raised.value is error
        assert raised.value.floor == LATER
        assert await state_of(other) == (1, 2)


async def test_a_newer_process_of_the_rank_ends_it_too(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    async with client_of(face, running.address) as client:
        with pytest.raises(StaleIncarnationError) as raised:  # noqa: PT012 - leaving the block raises
            async with registered(client, route(0), LAUNCH, lease_ttl=1) as registration:
                await other.register_route(route(0, incarnation=8), LAUNCH)
                await lost(registration)
        assert (raised.value.stale.newest_incarnation, raised.value.stale.deregistered) == (8, False)
        assert await state_of(other) == (1, 1)


async def test_so_does_an_admin_who_removes_it(face: Face, running: Running, other: AsyncBootstrapClient) -> None:
    async with client_of(face, running.address) as client:
        with pytest.raises(StaleIncarnationError) as raised:  # noqa: PT012 - leaving the block raises
            async with registered(client, route(0), LAUNCH, lease_ttl=1) as registration:
                assert (await other.deregister_route(route(0).key, LAUNCH, 7)).removed
                await lost(registration)
        assert raised.value.stale.deregistered


async def test_so_does_a_group_that_it_no_longer_fits(face: Face, start: Start) -> None:
    first, second = await start(), await start()
    async with AsyncBootstrapClient(second.address) as other:
        # The second server, which knows nothing of the first, is where another rank came first.
        await other.register_route(route(1, page_size=128), LAUNCH)
        async with client_of(face, f"ipv4:{first.address},{second.address}") as client:
            with pytest.raises(ContractMismatchError) as raised:  # noqa: PT012 - leaving the block raises
                async with registered(client, route(0), LAUNCH) as registration:
                    await first.server.stop(0)
                    await lost(registration)
        assert [one.field for one in raised.value.mismatch.differences] == ["page_size"]
        assert await state_of(other) == (1, 1)


async def test_what_the_block_raises_is_never_hidden(face: Face, running: Running, other: AsyncBootstrapClient) -> None:
    async with client_of(face, running.address) as client:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - leaving the block raises
            async with registered(client, route(0), LAUNCH, lease_ttl=1) as registration:
                await other.register_route(route(0), LATER)
                await lost(registration)
                raise ZeroDivisionError
        assert registration.state is RegistrationState.LOST


async def test_it_is_left_without_an_error_when_the_server_is_away(face: Face, running: Running) -> None:
    async with client_of(face, running.address) as client:
        async with registered(client, route(0), LAUNCH) as registration:
            await running.server.stop(0)
        assert registration.state is RegistrationState.ENDED


async def test_nor_does_that_hide_what_the_block_raises(face: Face, running: Running) -> None:
    async with client_of(face, running.address) as client:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - leaving the block raises
            async with registered(client, route(0), LAUNCH):
                await running.server.stop(0)
                raise ZeroDivisionError


async def test_entering_raises_what_registering_raises(
    face: Face, running: Running, other: AsyncBootstrapClient
) -> None:
    await other.register_route(route(1), LATER)
    async with client_of(face, running.address) as client:
        registration = client.registration(route(0), LAUNCH)
        assert (registration.state, registration.revision, registration.registered) == (RegistrationState.NEW, 0, None)
        for bad, kind in (
            (client.registration(route(0), LAUNCH), StaleInstanceError),
            (client.registration(route(0, page_size=128), LATER), ContractMismatchError),
            (client.registration(route(0, rank_port=0), LATER), InvalidRequestError),
            (client.registration(route(0), LATER, lease_ttl=0.5), InvalidFieldsError),
            (client.registration(route(0), LATER, lease_ttl=float("nan")), InvalidFieldsError),
        ):
            with pytest.raises(kind):
                await entered(bad)
        assert await state_of(other) == (1, 1)


async def test_it_is_entered_only_once(face: Face, running: Running) -> None:
    async with client_of(face, running.address) as client, registered(client, route(0), LAUNCH) as registration:
        with pytest.raises(RuntimeError, match="only once"):
            await entered(registration)


@pytest.fixture
def keeping_threads() -> Callable[[], int]:
    """How many threads keep leases, beside those that did before."""
    before = set(threading.enumerate())
    return lambda: sum(one.name == "interlock-leases" for one in set(threading.enumerate()) - before)


async def test_512_ranks_of_one_client_share_one_stream(
    face: Face, start: Start, keeping_threads: Callable[[], int]
) -> None:
    ranks = 512
    first = await start()
    async with client_of(face, first.address) as client, AsyncExitStack() as stack:
        kept = await asyncio.gather(
            *(
                stack.enter_async_context(registered(client, route(tp, ranks, rank_port=9000), LAUNCH, lease_ttl=60))
                for tp in range(ranks)
            )
        )
        await until(lambda: first.server.running_calls == 1)
        assert keeping_threads() == (1 if face.bootstrap is SyncFace.bootstrap else 0)
        # And it is one again after all of them found their way back to a new server.
        await first.server.stop(0)
        second = await start(first.port)
        async with AsyncBootstrapClient(first.address) as other:
            assert (await other.get_prefill_server_info(wait=True, timeout=PATIENCE)).instance == LAUNCH
        await until(lambda: all(one.state is RegistrationState.REGISTERED for one in kept))
        await until(lambda: second.server.running_calls == 1)
    assert keeping_threads() == 0
    await until(lambda: second.server.running_calls == 0)


async def test_a_client_whose_ranks_all_left_lets_its_stream_go_and_takes_another_when_one_comes(
    face: Face, running: Running
) -> None:
    async with client_of(face, running.address) as client:
        for incarnation in (1, 2):
            async with registered(client, route(0, incarnation=incarnation), LAUNCH):
                await until(lambda: running.server.running_calls == 1)
            await until(lambda: running.server.running_calls == 0)


async def test_a_fork_that_leaves_the_block_does_not_take_the_rank_from_its_parent(running: Running) -> None:
    program = f"""
import os
from interlock.client import BootstrapClient
from interlock.topology import Instance, ParallelSizes, RankKey, Route

route = Route(RankKey(0, 0, 0, 0), 7, ParallelSizes(1, 1, 1, 1), "10.0.0.1", 9000, 64)
with BootstrapClient({running.address!r}) as client:
    with client.registration(route, Instance("launch", 1_000)) as registration:
        child = os.fork()
        if not child:
            try:
                registration.__exit__(None, None, None)
                client._leases.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        print(client.get_rank_info(route.key).rank_port, registration.state.name)
"""
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment,
    )
    assert (done.stdout, done.returncode) == ("9000 REGISTERED\n", 0), done.stderr
