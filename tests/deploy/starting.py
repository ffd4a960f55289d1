"""Starts the containers of the manifests as processes of this machine: their commands and variables, with other ports,
and with folders of a test in place of what is mounted."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from deploy.manifests import Object, built, environment, interlock_containers
from etcd_cluster import EtcdCluster, free_ports
from interlock.client import Credentials
from interlock_cli.dev_certificates import write_dev_certificates

PATIENCE = 60
TOKEN = "a-token-for-this-test-alone"


@dataclass(frozen=True)
class Started:
    """A service that runs as a container of the manifests would."""

    container: Object
    address: str
    ports: Mapping[int, int]
    """The real ones, by those of the manifest."""
    credentials: Credentials

    def probe(self, name: str) -> int:
        """What the kubelet is answered."""
        probe = self.container[f"{name}Probe"]["grpc"]
        with grpc.insecure_channel(f"127.0.0.1:{self.ports[probe['port']]}") as channel:
            request = health_pb2.HealthCheckRequest(service=probe["service"])
            status: int = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE).status
        return status

    def metrics(self) -> dict[str, set[str]]:
        """The names of samples that Prometheus gets, with the names of their labels."""
        port = next(port["containerPort"] for port in self.container["ports"] if port["name"] == "metrics")
        return scraped(self.ports[port])


def scraped(port: int) -> dict[str, set[str]]:
    """The names of samples at a port's `/metrics`, with the names of their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


@contextmanager
def started(variant: str, service: str, folder: Path, etcd: EtcdCluster | None = None) -> Iterator[Started]:
    """The container that serves `service`, until the end of the block; it must stop cleanly and in time.

    Args:
        variant: of the manifests.
        service: `bootstrap`, `preprocess` or `all`.
        folder: for what is mounted.
        etcd: in place of the one in the manifests; it asks for certificates.
    """
    _, template, container = next(
        found for found in interlock_containers(built(variant)) if found[2]["args"][1] == service
    )
    variables = environment(container)
    certificates = write_dev_certificates(folder / "certificates", ["localhost"], "caller", timedelta(days=1))
    (folder / "credentials.toml").write_text(
        f'[[token]]\nid = "tests"\nsha256 = "{sha256(TOKEN.encode()).hexdigest()}"\nroles = ["admin"]\n'
    )
    contents: dict[str, dict[str, Path]] = {
        "interlock-credentials": {"credentials.toml": folder / "credentials.toml"},
        f"interlock-{service}-tls": {
            "tls.crt": certificates.server_certificate,
            "tls.key": certificates.server_key,
            "ca.crt": certificates.ca,
        },
    }
    if etcd is not None and etcd.certificates is not None:
        contents["interlock-etcd-client-tls"] = {
            "tls.crt": etcd.certificates.certificate,
            "tls.key": etcd.certificates.key,
            "ca.crt": etcd.certificates.ca,
        }
        variables["INTERLOCK_ETCD_ENDPOINTS"] = etcd.endpoints
    asked = dict(variables)
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        inside = folder / mount["name"]
        inside.mkdir()
        for key, file in contents.get(volumes.get(mount["name"], {}).get("secret", {}).get("secretName"), {}).items():
            (inside / key).symlink_to(file)
        for variable, value in asked.items():
            if value == mount["mountPath"] or value.startswith(mount["mountPath"] + "/"):
                variables[variable] = str(inside) + value.removeprefix(mount["mountPath"])
    inner = [port["containerPort"] for port in container["ports"]]
    ports = dict(zip(inner, free_ports(len(inner)), strict=True))
    for variable, value in variables.items():
        if variable.endswith("_PORT"):
            variables[variable] = str(ports[int(value)])
        elif variable.endswith("_HOST"):
            variables[variable] = "127.0.0.1"
    variables["PATH"] = os.environ["PATH"]
    variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    log = folder / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "interlock_cli", *container["args"], "--json"],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            port = int(re.search(r"\d+$", json.loads(line)["address"])[0])
            with_tls = "INTERLOCK_TLS_CERTIFICATE_FILE" in variables
            (folder / "token").write_text(TOKEN)
            yield Started(
                container,
                f"localhost:{port}",
                ports,
                Credentials(
                    ca_file=certificates.ca,
                    certificate_file=certificates.client_certificate,
                    key_file=certificates.client_key,
                    token_file=folder / "token",
                )
                if with_tls
                else Credentials(),
            )
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(template["spec"]["terminationGracePeriodSeconds"])
    assert code == 0, log.read_text()
