"""Server processes that tests kill, stop and start again. Whatever happens, none outlives the tests."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etcd_cluster import free_ports

PATIENCE = 60.0
"""Seconds after which what should have happened long ago is a failure. Nothing is expected to take as long."""

INTERLOCK = (sys.executable, "-m", "interlock_cli")


class ServerProcess:
    """One server: a command that is started again as it was. The kernel kills it when the tests die."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, *, prefix: Sequence[str] = (), **environment: str
    ) -> None:
        """
        Args:
            name: For its log and for messages.
            command: What to run.
            folder: Where its log goes.
            prefix: Put before the command, for example `ip netns exec NAMESPACE`.
            environment: Beside that of the tests, from which our own settings are taken out.
        """
        self.name = name
        self.command = [*prefix, "setpriv", "--pdeathsig", "KILL", *command]
        self.log = folder / f"{name}.log"
        self.environment = {**environment_of_tests(), **environment}
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False

    def start(self) -> None:
        assert self.process is None or self.process.poll() is not None, f"{self.name} runs already"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment
            )
        self.stopped = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it has no time for anything."""
        if self.process is not None:
            with self.process:
                self.process.kill()

    def stop(self) -> None:
        """SIGSTOP: it stands still and does not know it."""
        self.stopped = True
        os.kill(self.pid, signal.SIGSTOP)

    def proceed(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.stopped = False

    def terminate(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self.process is not None
        with self.process:
            self.process.terminate()
            return self.process.wait(PATIENCE)

    async def line(self) -> str:
        """The next line on its stdout."""
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await asyncio.to_thread(self.process.stdout.readline)
        assert line, f"{self.name} ended before it said anything:\n{self.log.read_text()[-4000:]}"
        return line


class Replica(ServerProcess):
    """An `interlock serve bootstrap`. It has the same port whenever it is started again."""

    def __init__(
        self, name: str, folder: Path, options: Sequence[str], *, host: str = "127.0.0.1", port: int = 0, **more: Any
    ) -> None:
        self.host, self.port = host, port or free_ports(1)[0]
        self.address = f"{host}:{self.port}"
        where = ["--host", host, "--insecure", "--port", str(self.port)]
        super().__init__(name, [*INTERLOCK, "serve", "bootstrap", *where, "--json", *options], folder, **more)

    async def serve(self) -> None:
        """Starts it and waits until it says that it serves."""
        self.start()
        assert json.loads(await self.line())["address"] == self.address


def environment_of_tests() -> Mapping[str, str]:
    """The environment without settings of ours, and with a path that holds in any folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    return environment
