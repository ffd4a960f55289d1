"""No byte outside of the picture, the patches and the workspace is touched, by wide loads and stores least of all."""

import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run(argument: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vision.guarded_pages", argument]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120)


def test_nothing_outside_is_read_or_written_at_either_end():
    done = run("1000")
    assert (done.returncode, done.stdout.strip()) == (0, "2000"), done.stderr[-2000:]


def test_a_byte_read_outside_would_end_the_process():
    assert run("outside").returncode == -signal.SIGSEGV
