"""The services that the programs meet: each a process of its own, one of which can be killed and started again."""

import json
import os
import select
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE_SECONDS = 60
"""A service starts in about a second."""


class ServiceError(Exception):
    """A service did not start."""


class Services:
    """Bootstrap with a file, and Preprocess, while the block runs.

    Args:
        state: The folder in which Bootstrap keeps its file.
        logs: The folder in which both keep their logs.

    Raises:
        ServiceError: One did not start.
    """

    def __init__(self, state: Path, logs: Path) -> None:
        self._bootstrap = _Service("bootstrap", logs, "--store", "sqlite", "--state-folder", str(state))
        self._preprocess = _Service("preprocess", logs)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for service in (self._bootstrap, self._preprocess):
                stack.callback(service.kill)
                service.start()
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def bootstrap(self) -> str:
        """Address of Bootstrap; the same after every restart."""
        return self._bootstrap.address

    @property
    def preprocess(self) -> str:
        """Address of Preprocess."""
        return self._preprocess.address

    def restart_bootstrap(self) -> None:
        """Kills Bootstrap (SIGKILL) and starts it again on the same port and file."""
        self._bootstrap.kill()
        self._bootstrap.start()


class _Service:
    def __init__(self, name: str, logs: Path, *options: str) -> None:
        self._name = name
        self._options = options
        self._log = logs / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> None:
        """Starts it where it was before, at first on a free port, and waits until it serves."""
        host, _, port = self.address.rpartition(":")
        where = ["--host", host, "--port", port, "--json"]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "interlock_cli", "serve", self._name, *where, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")},
            )
        stdout = self._process.stdout
        assert stdout is not None
        told, _, _ = select.select([stdout], [], [], _PATIENCE_SECONDS)
        line = stdout.readline() if told else ""
        if not line:
            raise ServiceError(f"{self._name} did not start: {self._log.read_text().strip()[-500:]}")
        self.address = json.loads(line)["address"]

    def kill(self) -> None:
        if self._process is not None:
            with self._process:
                self._process.kill()
            self._process = None
