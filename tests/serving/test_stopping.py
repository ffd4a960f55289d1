"""SIGTERM and SIGINT, sent to a real process."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub

TIMEOUT = 30
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def running_server(grace_seconds):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("stoppable_server.py")),
        str(grace_seconds),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        port = int(await asyncio.wait_for(process.stdout.readline(), TIMEOUT))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield process, channel
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def watch_readiness(channel):
    return health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service="readiness"), timeout=TIMEOUT
    )


async def end_of(process):
    """Exit code and log entries."""
    _, stderr = await asyncio.wait_for(process.communicate(), TIMEOUT)
    return process.returncode, [json.loads(line) for line in stderr.decode().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_readiness_lets_a_running_call_finish_and_exits_with_0(number):
    async with running_server(grace_seconds=TIMEOUT) as (process, channel):
        call = BootstrapServiceStub(channel).GetRankInfo(pb.GetRankInfoRequest(), timeout=TIMEOUT)
        assert await asyncio.wait_for(process.stdout.readline(), TIMEOUT) == b"in flight\n"
        readiness = watch_readiness(channel)
        assert (await readiness.read()).status == SERVING
        process.send_signal(number)
        assert (await readiness.read()).status == NOT_SERVING
        assert await readiness.code() is grpc.StatusCode.UNAVAILABLE  # the watch ends, it does not use up the grace
        assert (await call).rank_port == 7000
        code, log = await end_of(process)
    assert code == 0
    assert [entry["message"].split()[0] for entry in log if entry["logger"] == "interlock.serving.server"] == [
        "serving",
        number.name,
        "stopping;",
        "stopped",
    ]


async def test_a_call_that_outlasts_the_grace_is_cancelled():
    async with running_server(grace_seconds=0.2) as (process, channel):
        watch = BootstrapServiceStub(channel).WatchTopology(pb.WatchTopologyRequest(), timeout=TIMEOUT)
        assert (await watch.read()).revision == 1
        process.send_signal(signal.SIGTERM)
        code, _ = await end_of(process)
        assert await watch.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert code == 0


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_ends_at_once_whatever_runs(number, exit_code):
    async with running_server(grace_seconds=10 * TIMEOUT) as (process, channel):
        watch = BootstrapServiceStub(channel).WatchTopology(pb.WatchTopologyRequest(), timeout=TIMEOUT)
        assert (await watch.read()).revision == 1
        readiness = watch_readiness(channel)
        assert (await readiness.read()).status == SERVING
        process.send_signal(signal.SIGTERM)
        assert (await readiness.read()).status == NOT_SERVING
        process.send_signal(number)
        code, log = await end_of(process)
        watch.cancel()
    assert code == exit_code
    assert log[-1]["message"] == f"second {number.name}: ending at once"
