"""A service that has `interlock` without extras: it imports all stubs and the client, and uses both services."""

import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from interlock.bootstrap.v1 import bootstrap_pb2_grpc, bootstrap_service_pb2_grpc, errors_pb2_grpc  # noqa: F401
from interlock.client import BootstrapClient, ContractMismatchError, MissingPackageError, PreprocessClient
from interlock.kv.v1 import pool_name_pb2_grpc, spec_layout_pb2_grpc  # noqa: F401
from interlock.preprocess.v1 import preprocess_pb2_grpc, preprocess_service_pb2_grpc  # noqa: F401
from interlock.topology import Instance, ParallelSizes, RankKey, Route

heavy = {"numpy", "PIL", "numba", "numexpr", "click", "rich"} & sys.modules.keys()
assert not heavy, f"the client loads {sorted(heavy)}"

group = f"bare-{time.time_ns()}"
launch = Instance("launch", time.time_ns())


def rank(tp: int, page_size: int = 64) -> Route:
    return Route(RankKey(0, 0, tp, 0), 1, ParallelSizes(1, 1, 2, 1), "::1", 9000 + tp, page_size)


with BootstrapClient(sys.argv[1]) as bootstrap, PreprocessClient(sys.argv[1]) as preprocess:
    first = bootstrap.register_route(rank(0), launch, group=group, expected_revision=0)
    try:
        bootstrap.register_route(rank(1, page_size=128), launch, group=group)
        sys.exit("a rank that does not fit was taken")
    except ContractMismatchError as error:
        (difference,) = error.mismatch.differences
        assert (difference.field, difference.standing_value, difference.offered_value) == ("page_size", "64", "128")
    second = bootstrap.register_route(rank(1), launch, group=group, expected_revision=first.revision)
    ready = bootstrap.get_prefill_server_info(group)
    assert (ready.revision, ready.info.page_size) == (second.revision, 64)
    (planned,) = preprocess.plan_images([(640, 480)])
    assert planned.plan.token_count > 0
    try:
        preprocess.preprocess(b"")
        sys.exit("patches were made without NumPy")
    except MissingPackageError as error:
        assert "pip install 'interlock[patches]'" in str(error), error

command = subprocess.run([Path(sys.executable).with_name("interlock"), "--help"], capture_output=True, text=True)
assert command.returncode != 0
assert "pip install" in command.stderr, command.stderr
print(*(f"{name} {version(name)}" for name in ("interlock", "protobuf", "grpcio", "grpcio-status")))
