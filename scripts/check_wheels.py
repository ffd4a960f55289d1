"""Tries the wheels in fresh environments, beside the oldest and newest protobuf and grpcio that they allow.

    make packages ONLY=python && python -m scripts.check_packages python

Each calls a live server: this is what a downstream service with pins of its own gets. `interlock` without extras must
load nothing heavy.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSUMERS = ROOT / "scripts" / "package_consumers"
OLDEST_GRPCIO = "1.71.2"
ENVIRONMENTS = (
    ("interlock", "protobuf==5.29.*", f"grpcio=={OLDEST_GRPCIO}", f"grpcio-status=={OLDEST_GRPCIO}"),
    ("interlock", "protobuf==5.29.*"),  # and the newest grpcio
    ("interlock", "protobuf==6.*"),
    ("interlock", "protobuf==7.*"),
    ("interlock-protos", "protobuf==5.29.*", f"grpcio=={OLDEST_GRPCIO}"),
    ("interlock-protos", "protobuf==6.*", f"grpcio=={OLDEST_GRPCIO}"),
    ("interlock-protos", "protobuf==7.*", f"grpcio=={OLDEST_GRPCIO}"),
    ("interlock-protos", "protobuf==7.*"),
    # One library that needs the stubs alone and one that needs the client may meet in one service.
    ("interlock", "interlock-protos"),
)
"""What each environment has; what is not pinned is the newest."""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Both services of this tree, on a port of their own; gives the address."""
    command = [sys.executable, "-m", "interlock_cli", "serve", "all", "--store", "memory", "--port", "0", "--json"]
    sources = os.pathsep.join([str(ROOT / "libs"), str(ROOT / "services")])
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": sources}, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server does not start: {(folder / 'server.log').read_text()}")
            yield json.loads(line)["address"]
        finally:
            process.terminate()


def installed(folder: Path, wheels: Path, requirements: tuple[str, ...]) -> Path:
    """The Python of a fresh environment that has these, our wheels from their folder and the rest from the registry."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    ours = [str(_wheel(wheels, one)) for one in requirements if one.startswith("interlock")]
    theirs = [one for one in requirements if not one.startswith("interlock")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *ours, *theirs], check=True)
    return python


def _wheel(wheels: Path, name: str) -> Path:
    (found,) = wheels.glob(f"{name.replace('-', '_')}-*-py3-none-any.whl")
    return found.resolve()


def check(python: Path, program: str, address: str) -> str:
    """Runs a consumer in an environment, away from this tree; gives what it tells."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), str(CONSUMERS / program), address]
    run = subprocess.run(command, cwd=python.parent, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{program} fails:\n{run.stdout}{run.stderr}")
    return run.stdout.strip()


def check_all(wheels: Path) -> None:
    """Every environment. Exits with what fails."""
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as address:
        for number, requirements in enumerate(ENVIRONMENTS):
            python = installed(Path(name, str(number)), wheels, requirements)
            programs = [f"uses_{one.replace('-', '_')}.py" for one in requirements if one.startswith("interlock")]
            try:
                told = [check(python, program, address) for program in programs]
            except RuntimeError as error:
                sys.exit(f"{', '.join(requirements)}: {error}")
            print(f"{', '.join(requirements)}: {'; '.join(told)}", flush=True)
