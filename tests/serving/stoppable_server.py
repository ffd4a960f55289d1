"""A program with one server, for tests that send it signals. Prints its port, then a line for each call in flight."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import asyncio
import sys
from functools import partial

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import bootstrap_service_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import Server, ServerSettings, run_until_stopped
from interlock.serving.logs import LogSettings, configure


class Servicer(BootstrapServiceServicer):
    def __init__(self, server):
        self.draining = asyncio.Event()
        server.on_drain(self.draining.set)

    async def GetRankInfo(self, request, context):
        """Is in flight until the server stops, and then still answers."""
        print("in flight", flush=True)
        await self.draining.wait()
        return pb.GetRankInfoResponse(rank_ip="10.0.0.1", rank_port=7000)

    async def WatchTopology(self, request, context):
        """Never ends by itself."""
        yield pb.WatchTopologyResponse(revision=1)
        await asyncio.Event().wait()


async def main(grace_seconds):
    configure(LogSettings(format="json"))
    server = Server(ServerSettings(port=0, grace_seconds=grace_seconds))
    server.add(
        bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].full_name,
        partial(add_BootstrapServiceServicer_to_server, Servicer(server)),
    )
    port = await server.start()
    running = asyncio.create_task(run_until_stopped(server))
    await asyncio.sleep(0)  # the handlers of the signals are in place
    print(port, flush=True)
    await running


asyncio.run(main(float(sys.argv[1])))
