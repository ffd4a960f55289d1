"""Ranks that are kept registered, at servers that do what no good server would do."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from client.keeping import client_of, done, entered, lost, registered, until, until_state
from client.scripted import PATIENCE, QUICK, Face, Script, bootstrap_servicer, gives, hangs, refuse, refuses, serving
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.client import (
    BootstrapClient,
    CallCancelledError,
    DeadlineError,
    InterlockError,
    OverloadedError,
    RefusedError,
    Registered,
    RegistrationState,
    StaleInstanceError,
    UnexpectedAnswerError,
    UnreachableError,
)
from interlock.client._internal.leases import HeldLease
from interlock.topology import Instance, ParallelSizes, RankKey, Route

LAUNCH = Instance("launch", 1_000)
ROUTE = Route(RankKey(0, 0, 0, 0), 7, ParallelSizes(1, 1, 1, 1), "10.0.0.1", 9000, page_size=64)
BRIEF = pb.Lease(ttl=Duration(nanos=300_000_000))
"""What the scripted servers grant at first, so that the first renewal comes soon; renewed it has an hour."""

Requests = Iterator[pb.KeepAliveRequest]
Stream = Callable[[Requests, grpc.ServicerContext], Iterator[pb.KeepAliveResponse]]


def stands(revision: int = 5) -> Callable[..., pb.RegisterRouteResponse]:
    return gives(pb.RegisterRouteResponse(revision=revision, epoch=1, registered=1, expected=1, lease=BRIEF))


def renewing(*ttls: float) -> Stream:
    """A stream whose answers give these TTLs, one an answer; the last one for ever."""

    def answer(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
        left = list(ttls)
        for request in requests:
            ttl = left.pop(0) if len(left) > 1 else left[0]
            duration = Duration(seconds=int(ttl), nanos=int(ttl * 1e9) % 10**9)
            yield pb.KeepAliveResponse(
                renewals=[pb.LeaseRenewal(lease=lease, ttl=duration) for lease in request.leases]
            )

    return answer


def answering(*responses: pb.KeepAliveResponse) -> Stream:
    """A stream that answers the first request with these, and then waits."""

    def answer(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
        next(requests)
        yield from responses
        hangs(requests, context)

    return answer


def aborting(code: grpc.StatusCode) -> Stream:
    """A stream that ends with a status of gRPC's own, as a write does that fails while the call ends."""

    def answer(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
        next(requests)
        context.abort(code, "Internal error from Core")
        yield pb.KeepAliveResponse()

    return answer


def refusing(reason: str, code: grpc.StatusCode) -> Stream:
    def answer(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
        refuse(context, reason, code)
        yield pb.KeepAliveResponse()

    return answer


def ending(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
    """A stream that ends well without a word."""
    next(requests)
    return iter(())


def silent(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
    hangs(requests, context)
    return iter(())


def servicer(*streams: Stream, **scripts: Script) -> Any:
    """A server with these streams, one after another, which grants and removes whatever it is asked to."""
    unary = {
        "RegisterRoute": Script([stands()]),
        "DeregisterRoute": Script([gives(pb.DeregisterRouteResponse(removed=True, revision=6))]),
        **scripts,
    }
    return bootstrap_servicer(KeepAlive=Script(list(streams)), **unary)


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        pytest.param(answering(pb.KeepAliveResponse()), UnexpectedAnswerError, id="no renewal"),
        pytest.param(
            answering(pb.KeepAliveResponse(renewals=[pb.LeaseRenewal(lease=pb.LeaseRef(group="another"))])),
            UnexpectedAnswerError,
            id="a lease of somebody else",
        ),
        pytest.param(aborting(grpc.StatusCode.INTERNAL), InterlockError, id="INTERNAL of gRPC itself"),
        pytest.param(aborting(grpc.StatusCode.UNAVAILABLE), UnreachableError, id="UNAVAILABLE of a proxy"),
        pytest.param(aborting(grpc.StatusCode.CANCELLED), CallCancelledError, id="CANCELLED by a proxy"),
        pytest.param(aborting(grpc.StatusCode.UNIMPLEMENTED), RefusedError, id="UNIMPLEMENTED by a proxy"),
        pytest.param(refusing("DRAINING", grpc.StatusCode.UNAVAILABLE), RefusedError, id="DRAINING"),
        pytest.param(refusing("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED), OverloadedError, id="OVERLOADED"),
        pytest.param(ending, UnreachableError, id="an end without a word"),
        pytest.param(silent, DeadlineError, id="silence"),
    ],
)
async def test_whatever_ends_a_stream_another_one_follows_and_the_registration_stands(
    face: Face, bad: Stream, kind: type[Exception]
) -> None:
    go_on = threading.Event()

    def good(requests: Requests, context: grpc.ServicerContext) -> Iterator[pb.KeepAliveResponse]:
        go_on.wait(PATIENCE)
        yield from renewing(3_600)(requests, context)

    registrations = Script([stands()])
    with serving(servicer(bad, good, RegisterRoute=registrations)) as address:
        async with client_of(face, address, timeout=1.0) as client, registered(client, ROUTE, LAUNCH) as registration:
            await until(lambda: registration.error is not None)
            # Or grpc.aio put INTERNAL in the place of the server's status, as it does when a write fails just then.
            assert isinstance(registration.error, kind | UnreachableError)
            assert registration.state is RegistrationState.RECOVERING
            go_on.set()
            await until_state(registration, RegistrationState.REGISTERED)
            assert registration.error is None
    assert len(registrations.requests) == 1


async def test_a_lease_that_the_server_does_not_know_is_registered_again_exactly_as_before(face: Face) -> None:
    registrations = Script([stands(5), stands(6), stands(7)])
    with serving(servicer(renewing(0, 0, 3_600), RegisterRoute=registrations)) as address:
        async with client_of(face, address) as client, registered(client, ROUTE, LAUNCH) as registration:
            await until(lambda: registration.revision == 7)
            await until_state(registration, RegistrationState.REGISTERED)
    assert len(registrations.requests) == 3
    assert registrations.requests[0] == registrations.requests[1] == registrations.requests[2]


@pytest.mark.parametrize(
    "refused",
    [
        refuses("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE),
        refuses("STORE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED),
        refuses("INTERNAL", grpc.StatusCode.INTERNAL),
        lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost"),
        gives(pb.RegisterRouteResponse(revision=6)),  # without the lease that was asked for
        hangs,
    ],
    ids=["STORE_UNAVAILABLE", "STORE_FULL", "INTERNAL", "a lost connection", "no lease granted", "no answer"],
)
async def test_what_keeps_a_rank_from_registering_again_for_a_while_is_waited_out(face: Face, refused: Any) -> None:
    registrations = Script([stands(5), refused, stands(7)])
    with serving(servicer(renewing(0, 0, 3_600), RegisterRoute=registrations)) as address:
        async with client_of(face, address, timeout=0.5) as client, registered(client, ROUTE, LAUNCH) as registration:
            await until(lambda: registration.revision == 7)
            await until_state(registration, RegistrationState.REGISTERED)
    assert len(registrations.requests) == 3


async def test_a_lost_rank_is_neither_renewed_nor_deregistered(face: Face) -> None:
    floor = errors_pb2.StaleInstance(floor=pb.Instance(id="later", started_at=2_000))
    stale = refuses("STALE_INSTANCE", grpc.StatusCode.FAILED_PRECONDITION, "too late", floor)
    deregistrations = Script([gives(pb.DeregisterRouteResponse())])
    registrations = Script([stands(), stale])
    with serving(servicer(renewing(0), RegisterRoute=registrations, DeregisterRoute=deregistrations)) as address:
        async with client_of(face, address) as client:
            with pytest.raises(StaleInstanceError) as raised:
                async with registered(client, ROUTE, LAUNCH) as registration:
                    assert await lost(registration) is registration.error
            assert raised.value.floor == Instance("later", 2_000)
    assert (len(registrations.requests), deregistrations.requests) == (2, [])


async def test_entering_that_is_interrupted_takes_back_what_may_stand(
    face: Face, interrupts: Callable[[float], None]
) -> None:
    asked, deregistrations = Script([hangs]), Script([gives(pb.DeregisterRouteResponse(removed=True))])
    with serving(servicer(silent, RegisterRoute=asked, DeregisterRoute=deregistrations)) as address:
        if face.bootstrap is BootstrapClient:
            with BootstrapClient(address) as client:
                interrupts(0.1)
                with pytest.raises(KeyboardInterrupt):
                    client.registration(ROUTE, LAUNCH).__enter__()
        else:
            async with client_of(face, address) as client:
                entering = asyncio.create_task(entered(client.registration(ROUTE, LAUNCH)))
                await until(lambda: len(asked.requests) == 1)
                entering.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await entering
    assert (len(asked.requests), len(deregistrations.requests)) == (1, 1)


async def test_a_lease_that_was_asked_for_and_not_granted_is_no_registration(face: Face) -> None:
    with serving(servicer(silent, RegisterRoute=Script([gives(pb.RegisterRouteResponse(revision=5))]))) as address:
        async with client_of(face, address) as client:
            with pytest.raises(UnexpectedAnswerError, match="none was granted"):
                await entered(client.registration(ROUTE, LAUNCH))


@pytest.mark.parametrize("answer", [hangs, refuses("INTERNAL", grpc.StatusCode.INTERNAL)], ids=["hangs", "fails"])
async def test_leaving_ends_without_an_error_whatever_the_server_makes_of_it(face: Face, answer: Any) -> None:
    deregistrations = Script([answer])
    with serving(servicer(renewing(3_600), DeregisterRoute=deregistrations)) as address:
        async with client_of(face, address) as client:
            async with registered(client, ROUTE, LAUNCH) as registration:
                pass
            assert registration.state is RegistrationState.ENDED
            assert len(deregistrations.requests) == 1


async def test_leaving_while_it_registers_again_leaves(face: Face) -> None:
    registrations = Script([stands(), hangs])
    with serving(servicer(renewing(0), RegisterRoute=registrations)) as address:
        async with client_of(face, address) as client:
            async with registered(client, ROUTE, LAUNCH) as registration:
                await until(lambda: len(registrations.requests) == 2)
            assert registration.state is RegistrationState.ENDED
            await until(registrations.ended.is_set)


async def test_closing_the_client_ends_what_it_keeps_and_whoever_waits(face: Face) -> None:
    registrations, streams = Script([stands(), hangs]), Script([renewing(0)])
    with serving(bootstrap_servicer(KeepAlive=streams, RegisterRoute=registrations)) as address:
        client = face.bootstrap(address, retry=QUICK)
        async with AsyncExitStack() as stack:
            registration = await stack.enter_async_context(registered(client, ROUTE, LAUNCH))
            waiting = asyncio.create_task(lost(registration))
            await until(lambda: len(registrations.requests) == 2)
            await done(client.close)
            assert await waiting is None
            assert registration.state is RegistrationState.ENDED
            await until(streams.ended.is_set)


@pytest.fixture
def interrupts() -> Iterator[Callable[[float], None]]:
    """Arranges for one KeyboardInterrupt in the main thread, in so many seconds."""
    due = False

    def press(*_: object) -> None:
        nonlocal due
        if due:
            due = False
            raise KeyboardInterrupt

    def arrange(seconds: float) -> None:
        nonlocal due
        due = True
        # Again and again: a signal that comes just before a thread begins to wait does not wake it.
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)

    before = signal.signal(signal.SIGALRM, press)
    yield arrange
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_keyboard_interrupt_at_any_moment_leaves_the_keeper_working(interrupts: Callable[[float], None]) -> None:
    draw = random.Random(7)
    interrupted = 0
    granted = Registered(5, 1, 1, 1, True, 0.3)

    def held_lease() -> HeldLease:
        return HeldLease(ROUTE, LAUNCH, "default", 30.0, on_end=lambda: None)

    with serving(servicer(renewing(3_600))) as address, BootstrapClient(address, retry=QUICK) as client:
        keeper = client._leases
        for _ in range(300):
            held = held_lease()
            try:
                interrupts(draw.uniform(1e-5, 4e-4))
                while True:
                    keeper.hold(held, granted)
                    keeper.release(held)
            except KeyboardInterrupt:
                interrupted += 1
            keeper.release(held)
        last = held_lease()
        keeper.hold(last, granted)
        # It is renewed for an hour, which only a keeper whose lock is free can learn.
        ends_at = time.monotonic() + PATIENCE
        while last.third < 1 and time.monotonic() < ends_at:
            time.sleep(0.005)
        assert last.third == 1_200
    assert interrupted == 300


def test_a_keyboard_interrupt_ends_waiting_and_the_rank_is_deregistered(interrupts: Callable[[float], None]) -> None:
    deregistrations = Script([gives(pb.DeregisterRouteResponse(removed=True))])
    with serving(servicer(renewing(3_600), DeregisterRoute=deregistrations)) as address:
        with BootstrapClient(address) as client:
            registration = client.registration(ROUTE, LAUNCH)

            def wait_until_interrupted() -> None:
                with registration:
                    interrupts(0.05)
                    registration.wait_lost()

            with pytest.raises(KeyboardInterrupt):
                wait_until_interrupted()
        assert registration.state is RegistrationState.ENDED
        assert registration.wait_lost(timeout=0) is None
    assert len(deregistrations.requests) == 1
