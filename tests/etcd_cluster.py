"""Real etcd clusters on 127.0.0.1, for tests. None outlives the tests: the kernel kills members whose tests died."""

import atexit
import json
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATIENCE = 60.0
"""Seconds after which what should have happened long ago is a failure."""


@dataclass(frozen=True)
class Certificates:
    """Files of a CA, and of a certificate for 127.0.0.1 that members and clients share."""

    ca: Path
    certificate: Path
    key: Path


class Member:
    """One member of a cluster."""

    def __init__(self, name: str, folder: Path, scheme: str) -> None:
        self.name = name
        self.port, peer_port, self.metrics_port = free_ports(3)
        self.client_url = f"{scheme}://127.0.0.1:{self.port}"
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self.command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """For the setting `endpoints`."""
        return self.client_url.removeprefix("http://")

    def start(self) -> None:
        """Starts it, anew with the data it had if it was killed. To be called from the main thread of the tests."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """SIGKILL. Does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"etcd {self.name} ended:\n{self.log.read_text()[-4000:]}"


class EtcdCluster:
    """Members that form one cluster. Made by `etcd_cluster`."""

    def __init__(self, size: int, folder: Path, certificates: Certificates | None, options: tuple[str, ...]) -> None:
        self.certificates = certificates
        self.members = [Member(f"m{number}", folder, "https" if certificates else "http") for number in range(size)]
        everyone = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        tls = (
            (
                *("--cert-file", str(certificates.certificate), "--key-file", str(certificates.key)),
                *("--client-cert-auth", "--trusted-ca-file", str(certificates.ca)),
            )
            if certificates
            else ()
        )
        for member in self.members:
            member.command = [
                "etcd",
                *("--name", member.name, "--data-dir", str(member.data)),
                *("--listen-client-urls", member.client_url, "--advertise-client-urls", member.client_url),
                *("--listen-peer-urls", member.peer_url, "--initial-advertise-peer-urls", member.peer_url),
                *("--initial-cluster", everyone, "--initial-cluster-state", "new"),
                *("--listen-metrics-urls", f"http://127.0.0.1:{member.metrics_port}"),
                *("--logger", "zap", "--log-level", "warn"),
                *tls,
                *options,
            ]

    @property
    def endpoints(self) -> str:
        """For the setting `endpoints`."""
        return ",".join(member.endpoint for member in self.members)

    def start(self) -> None:
        """Starts all members and waits until each of them answers."""
        for member in self.members:
            member.start()
        for member in self.members:
            self.wait_healthy(member)

    def wait_healthy(self, member: Member) -> None:
        """Waits until a member takes part in the cluster."""
        deadline = time.monotonic() + PATIENCE
        while True:
            member.check_alive()
            try:
                self.etcdctl("endpoint", "health", endpoints=member.client_url)
                return
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise

    def leader(self) -> Member:
        """The member that leads, once there is one."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for member in self.members:
                try:
                    told = self.etcdctl("endpoint", "status", "--write-out", "json", endpoints=member.client_url)
                except subprocess.CalledProcessError:
                    continue
                status = json.loads(told)[0]["Status"]
                if status["leader"] == status["header"]["member_id"]:
                    return member
        raise AssertionError("the etcd cluster has no leader")

    def etcdctl(self, *arguments: str, endpoints: str | None = None, user: str | None = None) -> str:
        """What etcd's own command says.

        Raises:
            subprocess.CalledProcessError: It failed; `stderr` says why.
        """
        files = self.certificates
        told = subprocess.run(
            [
                "etcdctl",
                f"--endpoints={endpoints or ','.join(member.client_url for member in self.members)}",
                *(
                    ("--cacert", str(files.ca), "--cert", str(files.certificate), "--key", str(files.key))
                    if files
                    else ()
                ),
                *(("--user", user) if user else ()),
                *("--dial-timeout", "2s", "--command-timeout", "2s"),
                *arguments,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        return told.stdout

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, in order."""
        return self.etcdctl("get", prefix, "--prefix", "--keys-only").split()

    def revision(self) -> int:
        """The revision of the key space."""
        told = self.etcdctl("get", "/", "--write-out", "json")
        revision: int = json.loads(told)["header"]["revision"]
        return revision

    def compact(self) -> None:
        """Forgets every revision before the present one."""
        self.etcdctl("compaction", str(self.revision()))

    def kill(self) -> None:
        for member in self.members:
            member.kill()


@contextmanager
def etcd_cluster(size: int = 1, certificates: Certificates | None = None, *options: str) -> Iterator[EtcdCluster]:
    """A running cluster; killed, and its data removed, at the end of the `with` block, whatever happens in it.

    Args:
        size: Number of members.
        certificates: Members ask for certificates of this CA. None: no TLS.
        options: Further ones of the `etcd` command.
    """
    for command, package in (("etcd", "etcd-server"), ("etcdctl", "etcd-client")):
        assert shutil.which(command), f"`{command}` is not on the PATH: apt-get install {package}"
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # etcd syncs a file with every commit
    with tempfile.TemporaryDirectory(prefix="etcd-", dir=in_memory) as folder:
        cluster = EtcdCluster(size, Path(folder), certificates, options)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()


def make_certificates(folder: Path) -> Certificates:
    """A CA and a certificate signed by it, by the `openssl` command."""
    files = Certificates(folder / "ca.pem", folder / "etcd.pem", folder / "etcd-key.pem")
    key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    _openssl(*key, "-subj", "/CN=Test CA", "-keyout", str(folder / "ca-key.pem"), "-out", str(files.ca))
    _openssl(
        *key,
        *("-subj", "/CN=etcd", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-CA", str(files.ca), "-CAkey", str(folder / "ca-key.pem")),
        *("-keyout", str(files.key), "-out", str(files.certificate)),
    )
    return files


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now.

    Below those that the kernel gives to outgoing connections, so that a member that was killed finds its port again.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in ports:
                ports.append(port)
    return ports


@cache
def shared_cluster() -> EtcdCluster:
    """A cluster of one member for all tests that do not hurt it; each takes a prefix of its own."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(etcd_cluster())
