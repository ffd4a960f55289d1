"""A disk that is full: registrations are refused and change nothing; reads go on; so does all once there is room."""

import os
from itertools import repeat
from pathlib import Path

import grpc
import pytest

from bootstrap.calls import key, refused, registration
from faults.processes import Replica
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from scenarios.reads import snapshot

SIZES = pb.ParallelSizes(dp=1, cp=1, tp=4096, pp=1)
TMPFS = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'


def on_a_small_disk(folder: Path) -> list[str]:
    """Runs a command with a disk of 2 MiB of its own in place of a folder. It is gone with the command."""
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *who, "--mount", "sh", "-c", TMPFS, str(folder)]


def fill(path: Path) -> None:
    """Takes all the room there is."""
    pieces = repeat(bytes(4096))
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left on device"):
        file.writelines(pieces)


def make_room(path: Path) -> None:
    path.unlink()


async def test_a_full_disk_refuses_registrations_changes_nothing_and_is_recovered_from(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    server = Replica("server", tmp_path, ["--state-folder", str(disk / "state")], prefix=on_a_small_disk(disk))
    try:
        await server.serve()
        ballast = Path(f"/proc/{server.pid}/root{disk}/ballast")
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = BootstrapServiceStub(channel)
            await stub.RegisterRoute(registration(0, sizes=SIZES))
            fill(ballast)

            standing = 1
            while True:  # what the file still holds is used up first
                assert standing < SIZES.tp
                before = await snapshot(stub, "default")
                offered = registration(standing, sizes=SIZES)
                call = stub.RegisterRoute(offered)
                if await call.code() is not grpc.StatusCode.OK:
                    break
                standing += 1
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL")
            assert await snapshot(stub, "default") == before
            assert before.state.registered == standing

            # What needs no room goes on.
            again = await stub.RegisterRoute(registration(0, sizes=SIZES))
            assert (again.revision, again.registered) == (before.state.revision, standing)
            assert (await stub.GetRankInfo(pb.GetRankInfoRequest(key=key(0)))).rank_port == 9000
            assert (await refused(stub.RegisterRoute(offered))).reason == "STORE_FULL"

            make_room(ballast)
            answer = await stub.RegisterRoute(offered)
            assert (answer.revision, answer.registered) == (before.state.revision + 1, standing + 1)
        assert server.terminate() == 0
    finally:
        server.kill()
