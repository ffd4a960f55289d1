"""Registers the one rank of a group, and reads what a decode server needs to know of it. Shown in docs/clients.md."""

import sys
import time

import grpc

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub

address = sys.argv[1]
now = time.time_ns()

# ten lines
with grpc.insecure_channel(address) as channel:
    bootstrap = BootstrapServiceStub(channel)
    instance = pb.Instance(id=f"launch-{now}", started_at=now)
    sizes = pb.ParallelSizes(dp=1, cp=1, tp=1, pp=1)
    route = pb.Route(key={}, incarnation=now, sizes=sizes, rank_ip="::1", rank_port=9000, page_size=64)
    request = pb.RegisterRouteRequest(group="prefill-a", instance=instance, route=route)
    registered = bootstrap.RegisterRoute(request, timeout=10)
    query = pb.GetPrefillServerInfoRequest(group="prefill-a", min_revision=registered.revision)
    ready = bootstrap.GetPrefillServerInfo(query, timeout=10)
    print(f"ready at revision {ready.revision}: {ready.info.page_size} tokens a page")
# that is all
