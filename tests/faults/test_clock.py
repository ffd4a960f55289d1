"""The wall clock of a server is set by an hour, forward and back: leases do not care, and nobody is locked out."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from bootstrap.calls import INSTANCE, key, refused, registration
from faults.etcd_members import Member, free_ports, start_members
from faults.processes import PATIENCE, Replica
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from scenarios.reads import renew

TTL = 2


def leased(tp: int, seconds: int) -> pb.RegisterRouteRequest:
    request = registration(tp)
    request.lease_ttl.FromSeconds(seconds)
    return request


def moved_by(offset: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by what a file says; its monotonic clocks go on."""
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    assert libraries, "install libfaketime: apt-get install libfaketime"
    return {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_leases_run_as_they_would_without_a_step_of_the_clock(tmp_path, store, hours):
    offset = tmp_path / "offset"
    offset.write_text("+0s\n")
    member = Member("etcd", tmp_path, "127.0.0.1", tuple(free_ports(2)))
    options = ["--store", store, "--state-folder", str(tmp_path / "state"), "--etcd-endpoints", member.endpoint]
    server = Replica("server", tmp_path, options, **moved_by(offset))
    try:
        if store == "etcd":
            await start_members([member])
        await server.serve()
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = BootstrapServiceStub(channel)
            await stub.RegisterRoute(leased(0, 600))
            registered_at = time.monotonic()
            first = await stub.RegisterRoute(leased(1, TTL))

            watch = stub.WatchTopology(pb.WatchTopologyRequest(after_revision=first.revision))
            assert (await watch.read()).revision == first.revision
            offset.write_text(f"{hours * 3_600:+}s\n")
            # The server sees it: what a launcher stamps must not be ahead of the server's clock.
            ahead = registration(0)
            ahead.instance.CopyFrom(pb.Instance(id="ahead", started_at=time.time_ns() + (hours * 3_600 + 90) * 10**9))
            assert (await refused(stub.RegisterRoute(ahead))).fields == ["instance.started_at"]

            # The short lease ends, not before its time; the long one stays and can be renewed.
            async with asyncio.timeout(PATIENCE):
                while (left := await watch.read()).WhichOneof("body") != "change":
                    pass
            assert time.monotonic() - registered_at >= TTL
            watch.cancel()
            assert (left.revision, list(left.change.state.missing_keys)) == (first.revision + 1, [key(1)])
            assert await renew(stub, "default", key(0), INSTANCE) == 600

            # The launch that is served goes on, whatever the clock says by now.
            again = await stub.RegisterRoute(leased(1, 600))
            assert (again.revision, again.epoch, again.ready) == (first.revision + 2, first.epoch, True)
            assert (await stub.RegisterRoute(leased(0, 600))).revision == again.revision
    finally:
        server.kill()
        member.kill()
