"""Starts a service from the prefix of the interpreter that runs this, asks it for something, and stops it as
Kubernetes does. Part of scripts/check_image_steps.sh."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interlock.client import BootstrapClient, PreprocessClient

PREFIX = Path(sys.prefix)
PICTURES = next(PREFIX.glob("lib/python3.*/site-packages/interlock_cli/demo/pictures"))


def check_nothing_can_be_written() -> None:
    for place in (PREFIX, PREFIX / "kernels", PICTURES):
        try:
            tempfile.TemporaryFile(dir=place).close()
        except OSError:
            continue
        sys.exit(f"{place} can be written to; the check would show nothing")


def check_bill_of_materials() -> None:
    bill = json.loads((PREFIX / "sbom.cdx.json").read_text())
    names = {component["name"] for component in bill["components"]}
    missing = {"interlock", "grpcio", "protobuf", "click", "cryptography"} - names
    if missing or bill["bomFormat"] != "CycloneDX":
        sys.exit(f"the bill of materials lacks {missing or 'its format'}")
    print(f"  bill of materials: {len(names)} components")


def check_health(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for service in ("liveness", "readiness"):
            request = health_pb2.HealthCheckRequest(service=service)
            status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=20).status
            if status != health_pb2.HealthCheckResponse.SERVING:
                sys.exit(f"{service} is {status}")


def use(service: str, address: str) -> None:
    if service == "bootstrap":
        with BootstrapClient(address) as client:
            client.list_groups()
        return
    with PreprocessClient(address, shared_memory=False) as client:
        kernel = client.list_profiles().kernel
        for picture in sorted(PICTURES.iterdir()):
            patches = client.preprocess(picture)
            print(f"  {patches.plan.token_count} tokens of {picture.name}, by the {kernel} kernel")
        if kernel != "simd":
            sys.exit("the compiled kernel is not in use")


def main(service: str) -> None:
    check_nothing_can_be_written()
    check_bill_of_materials()
    with tempfile.TemporaryDirectory() as state:
        # A user without a home, as in the image.
        environment = {"INTERLOCK_PREPROCESS_KERNEL_CACHE_FOLDER": str(PREFIX / "kernels")}
        command = [PREFIX / "bin/interlock", "serve", service, "--json", "--port", "0", "--health-port", "0"]
        if service == "bootstrap":
            command += ["--state-folder", state]
        begun = time.monotonic()
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            if not line:
                sys.exit(f"it did not start: {process.stderr.read()}")
            print(f"  ready after {time.monotonic() - begun:.1f} s")
            address = json.loads(line)["address"]
            try:
                check_health(int(address.rpartition(":")[2]))
                use(service, address)
            finally:
                process.send_signal(signal.SIGTERM)
                logs = process.stderr.read()
                print(logs, end="", file=sys.stderr)
            code = process.wait(60)
        if code != 0:
            sys.exit(f"it ended with exit code {code}: {logs}")
        if "compiled at every start" in logs:
            sys.exit(f"the kernels of the image are not used: {logs}")
        print("  stopped, exit code 0")


main(sys.argv[1])
