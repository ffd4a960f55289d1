"""The servers that are measured, each in a process of its own."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0
"""Seconds after which a server that does not come up is a failure."""


class OurServer:
    """`interlock serve bootstrap`, which can be killed and started again on what it kept."""

    def __init__(self, store: Sequence[str]) -> None:
        """`store`: the flags that name it."""
        self._store = store
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Returns when it serves."""
        program = [sys.executable, "-m", "interlock_cli", "serve", "bootstrap", "--json", "--log-level", "warning"]
        self._process = subprocess.Popen([*program, "--port", "0", *self._store], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise SystemExit("interlock serve ended before it served")
        self.address = json.loads(said)["address"]

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def our_server(*store: str) -> Iterator[OurServer]:
    """One that runs within the block, with the store that the flags name."""
    server = OurServer(store)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def sqlite_flags() -> Iterator[list[str]]:
    """A SQLite store in a folder of its own, on the disk that holds temporary files."""
    with tempfile.TemporaryDirectory(prefix="interlock-benchmark-") as folder:
        yield ["--store", "sqlite", "--state-folder", folder]


@contextmanager
def peer_server(folder: str) -> Iterator[int]:
    """The peer's registry, empty; gives its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.topology.peer", folder, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for_port(port, process)
        yield port
    finally:
        process.kill()
        process.communicate()


@contextmanager
def etcd() -> Iterator[str]:
    """One member of etcd with its data on the disk that holds temporary files; gives its endpoint."""
    port, peer_port = free_port(), free_port()
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    with tempfile.TemporaryDirectory(prefix="interlock-benchmark-") as folder:
        process = subprocess.Popen(
            [
                *("etcd", "--name", "one", "--data-dir", folder, "--log-level", "error"),
                *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
                *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
                *("--initial-cluster", f"one={peer_url}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for_port(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.communicate()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} does not serve")
