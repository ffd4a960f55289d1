"""Ways to run the command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import Result

PATIENCE = 60
"""Seconds after which a process that should have ended is a failure."""

COMMAND = [sys.executable, "-m", "interlock_cli"]

_PYTHONPATH = os.pathsep.join(map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
"""Made absolute now, before a test goes to another folder."""


@contextmanager
def serving(folder: Path, *args: str) -> Iterator[str]:
    """Services started by `interlock serve`; gives their address. They must end cleanly."""
    log = folder / "serve.log"
    command = [*COMMAND, "serve", *args, "--port", "0", "--json"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment(folder))
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line)["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE)
    assert code == 0, log.read_text()


def error_line(result: Result | subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr, without `interlock: `. There must be exactly one."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("interlock: ")
    return lines[0].removeprefix("interlock: ")


def environment(folder: Path) -> dict[str, str]:
    """That of the tests, without settings of ours, with a path that holds in any folder, and state in a folder."""
    ours = ("INTERLOCK_", "STATE_DIRECTORY")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    variables["XDG_STATE_HOME"] = str(folder / "state")
    return {**variables, "PYTHONPATH": _PYTHONPATH} if _PYTHONPATH else variables
