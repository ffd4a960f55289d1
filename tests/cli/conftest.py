"""What the tests of the command share: fixtures that run it, and services that were started by it."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.running import COMMAND, PATIENCE, environment, serving
from interlock_cli import main


@pytest.fixture
def run(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real command in a folder of the test's own."""

    def run_command(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, "cwd": tmp_path, **options}
        return subprocess.run([*COMMAND, *map(str, args)], env=environment(tmp_path), check=False, **options)

    return run_command


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the real command; what still runs when the test ends is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start_command(*args: object, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                [*COMMAND, *map(str, args)],
                env={**environment(tmp_path), **(variables or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
            )
        )
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


@pytest.fixture(scope="session")
def services(tmp_path_factory) -> Iterator[str]:
    """The address of both services, started once by `interlock serve all`."""
    with serving(tmp_path_factory.mktemp("services"), "all") as address:
        yield address


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ask(invoke, services, monkeypatch):
    """Runs a command against the served Bootstrap, and gives what came out as JSON."""
    monkeypatch.setenv("INTERLOCK_ADDRESS", services)

    def ask_json(*args, exit_code=0):
        result = invoke(*args, "--json")
        assert result.exit_code == exit_code, result.stderr
        return json.loads(result.stdout)

    ask_json.text = invoke
    return ask_json
