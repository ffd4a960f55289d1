"""Client programs for the tests: Python that says what a test wants said, and one that really watches."""

import json
import sys
from pathlib import Path
from textwrap import dedent

from interlock_cli.demo.clients.programs import Program

PREAMBLE = dedent(
    """
    import argparse, json, pathlib, sys, time
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "preprocess", "pictures"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()

    def tell(step, ok=True, detail="as asked"):
        print(json.dumps({"step": step, "ok": ok, "seconds": 0.25, "detail": detail}), flush=True)

    def wait_for_restart():
        print(json.dumps({"step": "watch", "waiting": "restart"}), flush=True)

    steps = ["register", "race", "mismatch", "watch", "compatibility",
             "rooms", "picture", "neighbours", "cancel", "deadline"]
    """
)

ALL_OK = """
for step in steps:
    if step == "watch":
        wait_for_restart()
    tell(step)
"""

WATCHES = """
import grpc
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.client import BootstrapClient
from interlock.topology import Instance, ParallelSizes, RankKey, Route

def watch():
    route = Route(RankKey(0, 0, 0, 0), 1, ParallelSizes(1, 1, 1, 1), "127.0.0.1", 9000, 64)
    with BootstrapClient(options.bootstrap) as client:
        revision = client.register_route(route, Instance("launch", 1), group="scripted").revision
    with grpc.insecure_channel(options.bootstrap) as channel:
        call = BootstrapServiceStub(channel).WatchTopology(pb.WatchTopologyRequest(group="scripted"))
        snapshot = next(call)
        wait_for_restart()
        try:
            while True:
                next(call)
        except grpc.RpcError as error:
            lost = error.code().name
    with grpc.insecure_channel(options.bootstrap) as channel:
        request = pb.WatchTopologyRequest(group="scripted", after_revision=revision)
        again = next(BootstrapServiceStub(channel).WatchTopology(request, wait_for_ready=True, timeout=30))
        tell("watch", detail=f"{snapshot.revision == revision} {lost} {again.WhichOneof('body')}")

for step in steps:
    watch() if step == "watch" else tell(step)
"""


def write_program(folder: Path, body: str, *, language: str = "scripted") -> Program:
    """Puts a program into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(PREAMBLE + dedent(body))
    build = [sys.executable, "-m", "py_compile", "main.py"]
    return Program(language, tools=[sys.executable], builds=[build], run=[sys.executable, "main.py"])


def line(**told: object) -> str:
    """A line of Python that writes one JSON line."""
    return f"print({json.dumps(json.dumps(told))}, flush=True)\n"
