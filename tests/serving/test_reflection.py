"""Tools without our protos work against a server: `buf curl`, by reflection."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import asyncio
import base64
import json
import os
import sys
from pathlib import Path

import pytest
from google.rpc import error_details_pb2

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceServicer
from interlock.reasons import Reason
from interlock.serving import Refusal

TIMEOUT = 60


class OneRank(BootstrapServiceServicer):
    async def GetRankInfo(self, request, context):
        if request.group != "prefill":
            raise Refusal(Reason.UNKNOWN_GROUP, f"no group {request.group!r}")
        return pb.GetRankInfoResponse(rank_ip="10.0.0.1", rank_port=7000 + request.key.tp)


@pytest.fixture
async def buf_curl(serve, tmp_path):
    server, _ = await serve(OneRank())
    address = f"http://127.0.0.1:{await server.start()}"

    async def run(path="", *arguments):
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("buf")),
            "curl",
            "--protocol=grpc",
            "--http2-prior-knowledge",
            *arguments,
            address + path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        )
        stdout, stderr = await asyncio.wait_for(process.communicate(), TIMEOUT)
        return process.returncode, stdout.decode(), stderr.decode()

    return run


async def test_services_are_listed(buf_curl):
    code, stdout, stderr = await buf_curl("", "--list-services")
    assert (code, stderr) == (0, "")
    assert stdout.split() == [
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "interlock.bootstrap.v1.BootstrapService",
    ]


async def test_health_is_checked(buf_curl):
    code, stdout, _ = await buf_curl("/grpc.health.v1.Health/Check", "--data", '{"service": "readiness"}')
    assert (code, json.loads(stdout)) == (0, {"status": "SERVING"})


async def test_a_method_is_called(buf_curl):
    code, stdout, _ = await buf_curl(
        "/interlock.bootstrap.v1.BootstrapService/GetRankInfo", "--data", '{"group": "prefill", "key": {"tp": 3}}'
    )
    assert (code, json.loads(stdout)) == (0, {"rankIp": "10.0.0.1", "rankPort": 7003})


async def test_a_refusal_is_shown_with_its_reason(buf_curl):
    code, _, stderr = await buf_curl(
        "/interlock.bootstrap.v1.BootstrapService/GetRankInfo", "--data", '{"group": "typo"}'
    )
    error = json.loads(stderr)
    assert code == 5 * 8  # buf's exit code is 8 times the gRPC code
    assert (error["code"], error["message"]) == ("not_found", "no group 'typo'")
    (detail,) = error["details"]
    assert detail["type"] == "google.rpc.ErrorInfo"
    unpadded = detail["value"]
    info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(unpadded + "=" * (-len(unpadded) % 4)))
    assert (info.reason, info.domain) == ("UNKNOWN_GROUP", "interlock")
