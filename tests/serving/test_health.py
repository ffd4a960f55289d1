"""The health service of a running server."""

import asyncio
import socket
from datetime import timedelta
from functools import partial

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    BootstrapServiceStub,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import PortTakenError, Server, ServerSettings
from interlock.serving.tls import TlsSettings
from interlock_cli.dev_certificates import write_dev_certificates

TIMEOUT = 20
SERVICE = "interlock.bootstrap.v1.BootstrapService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def check(channel, *names):
    stub = health_pb2_grpc.HealthStub(channel)
    requests = [health_pb2.HealthCheckRequest(service=name) for name in names]
    return [(await stub.Check(request, timeout=TIMEOUT)).status for request in requests]


def watch(channel, name):
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT)


async def test_a_started_server_is_alive_and_ready(serve):
    _, channel = await serve(BootstrapServiceServicer())
    assert await check(channel, "", "liveness", "readiness", SERVICE) == [SERVING] * 4


async def test_a_service_that_is_not_well_makes_the_server_unready_and_not_dead(serve):
    server, channel = await serve(BootstrapServiceServicer())
    server.set_serving(SERVICE, False)
    names = ("", "readiness", SERVICE, "liveness")
    assert await check(channel, *names) == [NOT_SERVING, NOT_SERVING, NOT_SERVING, SERVING]
    server.set_serving(SERVICE, True)
    assert await check(channel, *names) == [SERVING] * 4


async def test_an_unknown_service_cannot_be_set(serve):
    server, _ = await serve(BootstrapServiceServicer())
    with pytest.raises(KeyError, match=r"interlock\.Typo"):
        server.set_serving("interlock.Typo", False)


async def test_a_check_of_an_unknown_name_is_refused_with_the_known_ones(serve):
    _, channel = await serve(BootstrapServiceServicer())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(channel, "interlock.Typo")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == f"no service 'interlock.Typo' here; known are liveness, readiness, {SERVICE}"
    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(caught.value).details[0].Unpack(info)
    assert info.reason == "UNKNOWN_SERVICE"


async def test_a_watch_of_an_unknown_name_says_so_and_stays_open(serve):
    server, channel = await serve(BootstrapServiceServicer())
    call = watch(channel, "interlock.Typo")
    assert (await call.read()).status == SERVICE_UNKNOWN
    server.set_serving(SERVICE, False)
    known = watch(channel, SERVICE)
    assert (await known.read()).status == NOT_SERVING
    assert not call.done()
    for open_call in (call, known):
        open_call.cancel()


async def test_a_watch_tells_each_change_once(serve):
    server, channel = await serve(BootstrapServiceServicer())
    call = watch(channel, "readiness")
    assert (await call.read()).status == SERVING
    server.set_serving(SERVICE, True)  # no change
    server.set_serving(SERVICE, False)
    assert (await call.read()).status == NOT_SERVING
    server.set_serving(SERVICE, True)
    assert (await call.read()).status == SERVING
    call.cancel()


async def test_a_stop_ends_watches_readiness_as_not_serving_and_liveness_as_it_was(serve):
    server, channel = await serve(BootstrapServiceServicer())
    readiness, liveness = watch(channel, "readiness"), watch(channel, "liveness")
    assert [(await call.read()).status for call in (readiness, liveness)] == [SERVING, SERVING]
    stopping = asyncio.create_task(server.stop(grace=10 * TIMEOUT))
    assert (await readiness.read()).status == NOT_SERVING
    for call in (readiness, liveness):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        info = error_details_pb2.ErrorInfo()
        assert rpc_status.from_call(caught.value).details[0].Unpack(info)
        assert info.reason == "DRAINING"
    await asyncio.wait_for(stopping, TIMEOUT)  # far below the grace: no watch used it up


async def test_many_watchers_leave_nothing_behind(serve, until_idle):
    server, channel = await serve(BootstrapServiceServicer())
    calls = [watch(channel, "readiness") for _ in range(50)]
    for call in calls:
        assert (await call.read()).status == SERVING
    assert server.running_calls == 50
    for call in calls:
        call.cancel()
    await until_idle(server)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
async def behind_tls(tmp_path):
    """A server that speaks mTLS, with a port for probes that do not."""
    port = free_port()
    files = write_dev_certificates(tmp_path, ["localhost"], "client", timedelta(days=1))
    server = Server(
        ServerSettings(port=0, health_port=port),
        tls=TlsSettings(certificate_file=files.server_certificate, key_file=files.server_key, client_ca_file=files.ca),
    )
    server.add(SERVICE, partial(add_BootstrapServiceServicer_to_server, BootstrapServiceServicer()))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield server, channel
    await server.stop(grace=0)


async def test_a_probe_that_knows_no_tls_has_a_port_of_its_own(behind_tls):
    server, channel = behind_tls
    assert await check(channel, "liveness", "readiness", SERVICE) == [SERVING] * 3
    server.set_serving(SERVICE, False)
    assert await check(channel, "liveness", "readiness") == [SERVING, NOT_SERVING]


async def test_the_port_for_probes_has_no_other_service(behind_tls):
    _, channel = behind_tls
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await BootstrapServiceStub(channel).ListGroups(bootstrap_pb2.ListGroupsRequest(), timeout=TIMEOUT)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_probes_are_told_while_the_server_drains_that_it_is_alive_and_not_ready(serve):
    arrived, answer = asyncio.Event(), asyncio.Event()

    class Slow(BootstrapServiceServicer):
        async def ListGroups(self, request, context):  # noqa: N802
            arrived.set()
            await answer.wait()
            return bootstrap_pb2.ListGroupsResponse()

    port = free_port()
    server, channel = await serve(Slow(), health_port=port)
    running = BootstrapServiceStub(channel).ListGroups(bootstrap_pb2.ListGroupsRequest(), timeout=TIMEOUT)
    running = asyncio.ensure_future(running)
    await arrived.wait()
    stopping = asyncio.create_task(server.stop(grace=TIMEOUT))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as probes:
        assert await check(probes, "liveness", "readiness") == [SERVING, NOT_SERVING]
    answer.set()
    await running
    await stopping


async def test_a_port_for_probes_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port} is taken"):
            await Server(ServerSettings(port=0, health_port=port)).start()
