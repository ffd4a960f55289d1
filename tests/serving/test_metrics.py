"""Metrics as Prometheus reads them: over HTTP, from a server that serves."""

import asyncio
import socket
import urllib.request

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bootstrap.calls import registration
from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.serving import PortTakenError, Server, ServerSettings
from interlock.serving.metrics import MetricsSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings

SERVICE = "interlock.bootstrap.v1.BootstrapService"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
async def served():
    port = free_port()
    server = Server(ServerSettings(port=0), metrics=MetricsSettings(port=port))
    add_bootstrap(server, BootstrapSettings(store="memory"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
        stub = BootstrapServiceStub(channel)
        stub.channel = channel
        yield stub, port
    await server.stop(grace=0)


async def scrape(port):
    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return answer.read().decode()

    text = await asyncio.to_thread(read)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_calls_are_counted_by_method_status_and_reason(served):
    stub, port = served
    await stub.ListGroups(bootstrap_pb2.ListGroupsRequest(), timeout=20)
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.GetRankInfo(bootstrap_pb2.GetRankInfoRequest(group="none"), timeout=20)
    samples = await scrape(port)
    listed, asked = f"{SERVICE}/ListGroups", f"{SERVICE}/GetRankInfo"
    assert samples["grpc_server_call_started_total", listed] == 1
    assert samples["grpc_server_call_duration_seconds_count", listed, "OK"] == 1
    assert samples["grpc_server_call_duration_seconds_count", asked, "INVALID_ARGUMENT"] == 1
    assert samples["interlock_refusals_total", asked, "INVALID_FIELD"] == 1
    assert samples["interlock_calls_running",] == 0


async def test_groups_ranks_and_changes_are_counted(served):
    stub, port = served
    await stub.RegisterRoute(registration(0, group="half"), timeout=20)
    for rank in range(2):
        await stub.RegisterRoute(registration(rank, group="whole"), timeout=20)
    await stub.RegisterRoute(registration(0, group="whole", launch=2), timeout=20)
    await stub.RegisterRoute(registration(1, group="whole", launch=2), timeout=20)
    watch = stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group="half"), timeout=20)
    await watch.read()
    samples = await scrape(port)
    watch.cancel()
    names = ["groups", "groups_ready", "ranks_registered", "ranks_missing", "rooms", "watchers"]
    assert [samples[f"interlock_{name}",] for name in names] == [2, 1, 3, 1, 0, 1]
    assert samples["interlock_group_ranks_missing", "half"] == 1
    assert ("interlock_group_ranks_missing", "whole") not in samples
    assert samples["interlock_committed_requests_total",] == 5
    assert samples["interlock_epochs_started_total",] == 3
    assert 3 <= samples["interlock_store_commit_seconds_count",] <= 5


async def test_a_method_that_the_server_does_not_have_makes_no_label(served):
    stub, port = served
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.channel.unary_unary(f"/{SERVICE}/Unknown")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    samples = await scrape(port)
    assert ("interlock_groups",) in samples
    assert not [key for key in samples if "Unknown" in str(key)]


async def test_a_taken_port_is_told_of_at_the_start():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = Server(ServerSettings(port=0), metrics=MetricsSettings(port=other.getsockname()[1]))
        with pytest.raises(PortTakenError, match="is taken"):
            await server.start()
