"""What the tests of the command share: ways to run it, and services that were started by it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from interlock_cli import main

PATIENCE = 60
"""Seconds after which a process that should have ended is a failure."""

COMMAND = [sys.executable, "-m", "interlock_cli"]


@pytest.fixture
def run(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real command in a folder of the test's own."""

    def run_command(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, "cwd": tmp_path, **options}
        return subprocess.run([*COMMAND, *map(str, args)], env=_environment(), check=False, **options)

    return run_command


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the real command; what still runs when the test ends is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start_command(*args: object, **options: Any) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        options = {"stdout": pipe, "stderr": pipe, "text": True, "cwd": tmp_path, **options}
        processes.append(subprocess.Popen([*COMMAND, *map(str, args)], env=_environment(), **options))
        return processes[-1]

    yield start_command
    for process in processes:
        with process:
            process.kill()


@pytest.fixture
def invoke(tmp_path, monkeypatch) -> Callable[..., Result]:
    """Runs the command in this process, in a folder of the test's own: quick, for what needs no process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLOCK_ADDRESS", raising=False)

    def invoke_command(*args: object) -> Result:
        return CliRunner().invoke(main, list(map(str, args)))

    return invoke_command


@contextmanager
def serving(folder: Path, *args: str) -> Iterator[str]:
    """Services started by `interlock serve`; gives their address. They must end cleanly."""
    log = folder / "serve.log"
    command = [*COMMAND, "serve", *args, "--port", "0", "--json"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=_environment())
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


@pytest.fixture(scope="session")
def services(tmp_path_factory) -> Iterator[str]:
    """The address of both services, started once by `interlock serve all`."""
    with serving(tmp_path_factory.mktemp("services"), "all") as address:
        yield address


def error_line(result: Result | subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr, without `interlock: `. There must be exactly one."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("interlock: ")
    return lines[0].removeprefix("interlock: ")


def _environment() -> dict[str, str]:
    """That of the tests, without settings of ours, and with a path that holds in any folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    return environment
