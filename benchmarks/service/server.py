"""The service in a process of its own, and the memory that it takes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock.client._internal.regions import FOLDER_VARIABLE

MIB = 1 << 20


class OurServer:
    """`interlock serve preprocess` on a free port. Made by `our_server`."""

    def __init__(self, flags: tuple[str, ...]) -> None:
        program = [sys.executable, "-m", "interlock_cli", "serve", "preprocess", "--json", "--log-level", "error"]
        self._process = subprocess.Popen([*program, "--port", "0", *flags], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise SystemExit("interlock serve ended before it served")
        self.address: str = json.loads(said)["address"]
        self.process_id = self._process.pid

    def resident_mib(self) -> float:
        """Memory that it holds now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The most that it held since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Let the peak count from now on."""
        Path(f"/proc/{self.process_id}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """Processor time that it used so far, on all its threads."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.communicate()

    def _status(self, name: str) -> float:
        status = Path(f"/proc/{self.process_id}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / MIB


@contextmanager
def our_server(*flags: str) -> Iterator[OurServer]:
    """One that runs within the block, and shares memory with the clients of this process."""
    with TemporaryDirectory(prefix="interlock-benchmark-", dir="/dev/shm") as folder:
        others, os.environ[FOLDER_VARIABLE] = os.environ.get(FOLDER_VARIABLE), folder
        server = OurServer(flags)
        try:
            yield server
        finally:
            server.stop()
            os.environ.pop(FOLDER_VARIABLE)
            if others is not None:
                os.environ[FOLDER_VARIABLE] = others
