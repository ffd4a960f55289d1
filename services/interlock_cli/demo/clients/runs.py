"""One run of a program: its lines are read, its wish for a restart is met, and each step gets its result."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from interlock_cli.demo.clients.programs import Program
from interlock_cli.demo.clients.services import ServiceError, Services

STEPS = (
    "register",
    "race",
    "mismatch",
    "watch",
    "compatibility",
    "rooms",
    "picture",
    "neighbours",
    "cancel",
    "deadline",
)
"""What every program does, in this order."""

SILENCE_SECONDS = 60.0
"""A program that says nothing for this long hangs. No step takes a tenth of it."""


@dataclass(frozen=True)
class Result:
    """How one step ended."""

    step: str
    ok: bool
    seconds: float
    detail: str


def run(
    program: Program, folder: Path, services: Services, pictures: Path, log: Path, *, silence: float = SILENCE_SECONDS
) -> Iterator[Result]:
    """Runs a program, and gives each step's result as it is known. Every step gets one.

    Args:
        program: What to run.
        folder: Its folder.
        services: What it meets; Bootstrap is restarted when the program waits for that.
        pictures: The folder of pictures.
        log: What the program says on stdout and stderr is appended here.
        silence: Seconds without a line after which it is killed.
    """
    command = [
        *program.run,
        *("--bootstrap", services.bootstrap),
        *("--preprocess", services.preprocess),
        *("--pictures", str(pictures)),
    ]
    awaited = list(STEPS)
    restarted = all_ok = False
    started = time.perf_counter()
    try:
        with log.open("a") as said, _started(command, folder, said) as process:
            for line in _lines(process, silence):
                said.write(line)
                said.flush()
                told = _parsed(line)
                due = awaited[0] if awaited else "the end"
                if told.get("waiting") == "restart" and due == "watch" and not restarted:
                    services.restart_bootstrap()
                    restarted = True
                    continue
                result = _result(told, line)
                if result.step != due:
                    raise _NotItsFaceError(f"told of step {result.step} when {due} was due")
                if result.step == "watch" and result.ok and not restarted:
                    raise _NotItsFaceError("did not wait for the restart")
                all_ok = result.ok and (all_ok or len(awaited) == len(STEPS))
                awaited.pop(0)
                yield result
            code = process.wait(silence)
        if awaited:
            raise _NotItsFaceError(f"ended with exit code {code}; see {log}")
        if (code == 0) != all_ok:
            raise _NotItsFaceError(f"exit code {code} after steps that {'were' if all_ok else 'were not'} all ok")
    except (OSError, subprocess.TimeoutExpired, ServiceError, _NotItsFaceError) as error:
        yield Result(awaited[0] if awaited else "exit", False, time.perf_counter() - started, str(error))
        for step in awaited[1:]:
            yield Result(step, False, 0.0, "not reached")


class _NotItsFaceError(Exception):
    """A program does not speak as it should."""


@contextmanager
def _started(command: Sequence[str], folder: Path, log: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The program in a process group of its own, of which nothing is left when the block ends."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _lines(process: subprocess.Popen[str], silence: float) -> Iterator[str]:
    """What the program writes to stdout, line by line."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=silence)
        except queue.Empty:
            raise _NotItsFaceError(f"said nothing for {silence:.0f} s") from None
        if not line:
            return
        yield line


def _parsed(line: str) -> dict[str, object]:
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise _NotItsFaceError(f"wrote a line that is no JSON object: {line.strip()[:200]!r}")
    return told


def _result(told: dict[str, object], line: str) -> Result:
    match told:
        case {"step": str(step), "ok": bool(ok), "seconds": int() | float() as seconds, "detail": str(detail)}:
            return Result(step, ok, seconds, detail)
    raise _NotItsFaceError(f"wrote a line without step, ok, seconds and detail: {line.strip()[:200]!r}")
