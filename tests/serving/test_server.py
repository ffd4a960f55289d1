"""Where a server listens, what it bounds, and what it tolerates."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import asyncio
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial

import grpc
import pytest

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import bootstrap_service_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    BootstrapServiceStub,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import CannotListenError, PortTakenError, Server, ServerSettings
from interlock.serving.access import AccessSettings

BOOTSTRAP = bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name
TIMEOUT = 20
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


def frame(kind, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


async def next_frame(reader):
    header = await asyncio.wait_for(reader.readexactly(9), TIMEOUT)
    await asyncio.wait_for(reader.readexactly(int.from_bytes(header[:3], "big")), TIMEOUT)
    return header[3], header[4]


class Echo(BootstrapServiceServicer):
    async def ListGroups(self, request, context):
        return pb.ListGroupsResponse(next_page_token=request.page_token)


async def test_a_second_server_on_a_port_fails_and_says_what_to_do(serve, capfd):
    first, _ = await serve(Echo())
    port = await first.start()
    with pytest.raises(PortTakenError) as caught:
        await Server(ServerSettings(port=port)).start()
    assert str(caught.value) == (
        f"127.0.0.1:{port} is taken: something else listens there, perhaps another server of this kind; "
        "stop it or choose another port"
    )
    assert str(port) not in capfd.readouterr().err  # gRPC has no line of its own beside what the caller prints


async def test_a_server_on_all_addresses_is_refused_the_port_of_one_on_a_single_address(serve):
    first, _ = await serve(Echo())
    settings = ServerSettings(host="0.0.0.0", port=await first.start())
    with pytest.raises(PortTakenError, match=r"0\.0\.0\.0:\d+ is taken"):
        await Server(settings, AccessSettings(insecure=True)).start()


async def test_a_port_that_another_kind_of_program_shares_is_taken_too():
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTakenError):
            await Server(ServerSettings(port=other.getsockname()[1])).start()


async def test_an_address_of_another_machine_is_refused_by_name():
    with pytest.raises(CannotListenError) as caught:
        await Server(ServerSettings(host="203.0.113.7", port=0), AccessSettings(insecure=True)).start()
    assert str(caught.value) == "cannot listen on 203.0.113.7:0: Cannot assign requested address"


async def test_a_stopped_server_leaves_its_port_to_the_next_one(serve):
    first, channel = await serve(Echo())
    port = await first.start()
    await BootstrapServiceStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT)
    await first.stop(grace=0)
    second = Server(ServerSettings(port=port))
    assert await second.start() == port
    await second.stop(grace=0)


async def test_a_service_cannot_be_added_to_a_started_server(serve):
    server, _ = await serve(Echo())
    with pytest.raises(RuntimeError, match=r"interlock\.Late was added to a server that had been started"):
        server.add("interlock.Late", lambda _: None)


def test_a_service_that_reflection_could_not_describe_is_refused():
    with pytest.raises(
        LookupError, match=r"no imported module describes interlock\.Typo; import its `\.\.\._service_pb2`"
    ):
        Server().add("interlock.Typo", lambda _: None)


async def test_a_server_can_be_made_outside_of_an_event_loop():
    server = await asyncio.to_thread(Server, ServerSettings(port=0))
    assert await server.start() > 0
    await server.stop(grace=0)


async def test_a_stopped_server_does_not_start_again(serve):
    server, _ = await serve(Echo())
    await server.stop(grace=0)
    with pytest.raises(RuntimeError, match="a stopped server does not start again"):
        await server.start()


async def test_a_stop_before_the_start_is_no_error():
    await Server().stop(grace=0)


async def test_frequent_pings_between_calls_are_answered_and_not_punished(serve):
    server, _ = await serve(Echo())
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    writer.write(HTTP2_PREFACE + frame(SETTINGS))
    for _ in range(50):  # gRPC's own policy sends the caller away at the fifth
        writer.write(frame(PING, bytes(8)))
        while (answer := await next_frame(reader)) != (PING, ACK):
            assert answer[0] != GOAWAY
    writer.close()
    await writer.wait_closed()


async def test_connections_over_the_bound_are_closed(serve):
    server, channel = await serve(Echo(), max_connections=2)
    await BootstrapServiceStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT)
    port = await server.start()
    greeting = HTTP2_PREFACE + frame(SETTINGS)
    second = await asyncio.open_connection("127.0.0.1", port)
    second[1].write(greeting)
    assert (await next_frame(second[0]))[0] == SETTINGS
    third = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(third[0].read(), TIMEOUT) == b""
    for _, writer in (second, third):
        writer.close()
        await writer.wait_closed()


async def test_a_message_over_the_bound_is_refused(serve):
    _, channel = await serve(Echo(), max_receive_message_bytes=1024)
    stub = BootstrapServiceStub(channel)
    token = "x" * 1000
    assert (await stub.ListGroups(pb.ListGroupsRequest(page_token=token), timeout=TIMEOUT)).next_page_token == token
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListGroups(pb.ListGroupsRequest(page_token=token * 2), timeout=TIMEOUT)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_metadata_over_the_bound_is_refused_and_below_it_never(serve):
    _, channel = await serve(Echo())
    stub = BootstrapServiceStub(channel)
    for _ in range(30):
        await stub.ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT, metadata=[("x-large", "x" * 15_000)])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT, metadata=[("x-large", "x" * 17_000)])
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_of_a_crowd_that_comes_at_once_nobody_is_cancelled(serve):
    server, _ = await serve(Echo())
    address = f"127.0.0.1:{await server.start()}"
    async with AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(4)]
        stubs = [BootstrapServiceStub(await stack.enter_async_context(channel)) for channel in channels]
        calls = [stub.ListGroups(pb.ListGroupsRequest(page_token="here")) for stub in stubs for _ in range(900)]
        answers = await asyncio.gather(*calls)
    assert [answer.next_page_token for answer in answers] == ["here"] * 3_600


class Lifespan:
    """What a service needs while it serves."""

    def __init__(self, happened, name, fault=None):
        self.happened, self.name, self.fault = happened, name, fault

    async def __aenter__(self):
        self.happened.append(f"{self.name} begins")
        if self.fault:
            raise self.fault

    async def __aexit__(self, *_):
        self.happened.append(f"{self.name} ends")


async def test_what_a_service_needs_is_there_before_its_first_call_and_until_after_its_last():
    happened = []

    class Lister(BootstrapServiceServicer):
        async def ListGroups(self, request, context):
            happened.append("call")
            await draining.wait()
            happened.append("call ends")
            return pb.ListGroupsResponse()

    draining = asyncio.Event()
    server = Server(ServerSettings(port=0))
    server.on_drain(draining.set)
    server.add(BOOTSTRAP, partial(add_BootstrapServiceServicer_to_server, Lister()))
    for name in ("first", "second"):
        server.add_lifespan(partial(Lifespan, happened, name))
    assert happened == []
    port = await server.start()
    assert happened == ["first begins", "second begins"]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = asyncio.ensure_future(BootstrapServiceStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT))
        async with asyncio.timeout(TIMEOUT):
            while "call" not in happened:  # noqa: ASYNC110 - the call is what is waited for
                await asyncio.sleep(0.001)
        await server.stop(TIMEOUT)
        await call
    assert happened[2:] == ["call", "call ends", "second ends", "first ends"]


async def test_a_server_that_lacks_what_it_needs_does_not_listen_and_gives_back_the_rest():
    happened = []
    server = Server(ServerSettings(port=0))
    server.add_lifespan(partial(Lifespan, happened, "first"))
    server.add_lifespan(partial(Lifespan, happened, "second", fault=OSError("the file is damaged")))
    with pytest.raises(OSError, match="the file is damaged"):
        await server.start()
    assert happened == ["first begins", "second begins", "first ends"]
    await server.stop()


def test_serving_is_imported_without_numpy_and_pillow():
    program = (
        "import sys, interlock.serving, interlock.serving.config, interlock.serving.logs\n"
        "assert not {'numpy', 'PIL', 'numba', 'numexpr'} & set(sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
