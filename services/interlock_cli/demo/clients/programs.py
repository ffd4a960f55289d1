"""The programs: what each is built with, built by, and run as."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_BUILD_SECONDS = 900
"""A build that takes longer hangs: the slowest, with nothing in any cache, takes a few minutes on two cores."""


@dataclass(frozen=True)
class Program:
    """One client program.

    Attributes:
        language: Name for people and for `--only`; also the name of its folder.
        tools: Commands that have to be installed.
        builds: Commands that build it, run in its folder.
        run: The command that runs it, in its folder.
    """

    language: str
    tools: Sequence[str]
    builds: Sequence[Sequence[str]]
    run: Sequence[str]


PROGRAMS = (
    Program(
        "go",
        tools=["go"],
        builds=[["go", "build", "-o", "build/interlock-client", "."]],
        run=["build/interlock-client"],
    ),
    Program(
        "rust",
        tools=["cargo"],
        builds=[["cargo", "build", "--release"]],
        run=["target/release/interlock-client"],
    ),
    Program(
        "node",
        tools=["node", "npm"],
        builds=[
            ["npm", "ci", "--no-audit", "--no-fund", "--prefix", "../../../packages/npm"],
            ["npm", "ci", "--no-audit", "--no-fund"],
            ["npm", "run", "build"],
        ],
        run=["node", "dist/main.js"],
    ),
    Program(
        "java",
        tools=["java", "javac", "mvn"],
        builds=[
            ["mvn", "--batch-mode", "--no-transfer-progress", "--file", "../../../packages/maven", "install"],
            ["mvn", "--batch-mode", "--no-transfer-progress", "package"],
        ],
        run=["java", "-jar", "target/interlock-client.jar"],
    ),
    Program(
        "cpp",
        tools=["cmake", "ninja", "c++"],
        builds=[
            ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"],
            ["cmake", "--build", "build"],
        ],
        run=["build/interlock-client"],
    ),
)
"""In the order in which they are run."""


class BuildError(Exception):
    """A program could not be built: a tool is missing, or a command failed."""


def build(program: Program, folder: Path, log: Path) -> None:
    """Builds a program. What the tools say goes to `log`.

    Raises:
        BuildError: It could not be built.
    """
    if missing := [tool for tool in program.tools if shutil.which(tool) is None]:
        raise BuildError(f"not installed: {', '.join(missing)}")
    for command in program.builds:
        try:
            with log.open("ab") as handle:
                handle.write(f"$ {' '.join(command)}\n".encode())
                handle.flush()
                ended = subprocess.run(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=handle,
                    stderr=subprocess.STDOUT,
                    timeout=_BUILD_SECONDS,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise BuildError(f"`{' '.join(command)}` took longer than {_BUILD_SECONDS} s; see {log}") from None
        except OSError as error:
            raise BuildError(f"`{' '.join(command)}` cannot be run: {error}") from None
        if ended.returncode:
            raise BuildError(f"`{' '.join(command)}` ended with exit code {ended.returncode}; see {log}")
