"""A server without file descriptors left: it refuses newcomers, serves whom it knows, and recovers."""

import socket
from contextlib import ExitStack

import grpc
import pytest

from bootstrap.calls import key, registration
from faults.etcd_members import Member, free_ports, start_members
from faults.processes import PATIENCE, Replica
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub

DESCRIPTORS = 100
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
async def test_a_server_without_descriptors_serves_whom_it_knows_and_recovers(tmp_path, store):
    member = Member("etcd", tmp_path, "127.0.0.1", tuple(free_ports(2)))
    options = ["--store", store, "--state-folder", str(tmp_path / "state"), "--etcd-endpoints", member.endpoint]
    server = Replica("server", tmp_path, options, prefix=["prlimit", f"--nofile={DESCRIPTORS}"])
    try:
        if store == "etcd":
            await start_members([member])
        await server.serve()
        with ExitStack() as crowd:
            async with (
                grpc.aio.insecure_channel(server.address, options=OPTIONS) as known_channel,
                grpc.aio.insecure_channel(server.address, options=OPTIONS) as late_channel,
            ):
                known, late = BootstrapServiceStub(known_channel), BootstrapServiceStub(late_channel)
                first = await known.RegisterRoute(registration(0))
                watch = known.WatchTopology(pb.WatchTopologyRequest())
                assert (await watch.read()).revision == first.revision
                for _ in range(2 * DESCRIPTORS):
                    crowd.enter_context(socket.create_connection((server.host, server.port)))

                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await late.GetRankInfo(pb.GetRankInfoRequest(key=key(0)), timeout=2)
                assert refusal.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}

                second = await known.RegisterRoute(registration(1))
                assert second.ready
                assert (await watch.read()).revision == second.revision

                crowd.close()
                answer = await late.GetRankInfo(
                    pb.GetRankInfoRequest(key=key(1)), timeout=PATIENCE, wait_for_ready=True
                )
                assert (answer.rank_port, answer.revision) == (9001, second.revision)
                watch.cancel()
        assert server.terminate() == 0
    finally:
        server.kill()
        member.kill()
