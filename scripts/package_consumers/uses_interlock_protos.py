"""A service that has the stubs alone: it imports all of them, and calls both services."""

import sys
import time
from importlib.metadata import version

import grpc

from interlock.bootstrap.v1 import bootstrap_pb2, bootstrap_service_pb2_grpc, errors_pb2
from interlock.kv.v1 import pool_name_pb2, spec_layout_pb2
from interlock.preprocess.v1 import preprocess_pb2, preprocess_service_pb2_grpc

group = f"stubs-{time.time_ns()}"
route = bootstrap_pb2.Route(
    key={},
    incarnation=2**64 - 1,
    sizes={"dp": 1, "cp": 1, "tp": 1, "pp": 1},
    rank_ip="::1",
    rank_port=9000,
    page_size=64,
    pools=[pool_name_pb2.POOL_NAME_KV],
    dsv41_spec_layout=spec_layout_pb2.SpecLayoutDeclaration(layout={"extra_json": {"ratio": "1.0"}}),
)
request = bootstrap_pb2.RegisterRouteRequest(
    group=group, route=route, instance={"id": "launch", "started_at": time.time_ns()}, expected_revision=0
)
with grpc.insecure_channel(sys.argv[1]) as channel:
    bootstrap = bootstrap_service_pb2_grpc.BootstrapServiceStub(channel)
    registered = bootstrap.RegisterRoute(request, timeout=30)
    assert registered.ready
    try:
        request.route.rank_port = 9001
        bootstrap.RegisterRoute(request, timeout=30)
        sys.exit("a lost race was won")
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.ABORTED
        trailers = dict(error.trailing_metadata())
        assert errors_pb2.RevisionConflict.DESCRIPTOR.full_name.encode() in trailers["grpc-status-details-bin"]
    watch = bootstrap.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group=group))
    assert next(watch).snapshot.routes[0].incarnation == 2**64 - 1
    watch.cancel()
    preprocess = preprocess_service_pb2_grpc.PreprocessServiceStub(channel)
    size = preprocess_pb2.ImageSize(width=640, height=480)
    plans = preprocess.PlanImages(preprocess_pb2.PlanImagesRequest(sizes=[size]), timeout=30)
    assert plans.results[0].plan.token_count > 0
print(*(f"{name} {version(name)}" for name in ("interlock-protos", "protobuf", "grpcio")))
