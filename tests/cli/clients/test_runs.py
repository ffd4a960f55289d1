"""One run of a client program, against real services: what it says, and what it gets for it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.clients.scripted import ALL_OK, WATCHES, line, write_program
from interlock_cli.demo.clients.runs import STEPS, Result, run
from interlock_cli.demo.clients.services import Services


@pytest.fixture(scope="module")
def services(tmp_path_factory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    with Services(folder / "state", folder) as running:
        yield running


@pytest.fixture
def results(services, tmp_path):
    """Runs a program of this body."""

    def results_of(body: str, *, silence: float = 30) -> list[Result]:
        program = write_program(tmp_path, body)
        return list(run(program, tmp_path, services, tmp_path, tmp_path / "log", silence=silence))

    return results_of


def failures(results: list[Result]) -> list[tuple[str, str]]:
    return [(result.step, result.detail) for result in results if not result.ok]


def test_each_step_gets_what_the_program_said(results, tmp_path):
    told = results(ALL_OK)
    assert told == [Result(step, True, 0.25, "as asked") for step in STEPS]
    assert (tmp_path / "log").read_text().count('"ok": true') == 10


def test_bootstrap_is_killed_and_comes_back_where_it_was_with_all_it_kept(results, services):
    address = services.bootstrap
    told = results(WATCHES)
    assert failures(told) == []
    assert told[STEPS.index("watch")].detail == "True UNAVAILABLE progress"
    assert services.bootstrap == address


def test_a_failed_step_fails_alone(results):
    told = results(
        """
        for step in steps:
            if step == "watch":
                wait_for_restart()
            tell(step, step != "rooms", "room 2^63 came back as -2^63" if step == "rooms" else "as asked")
        sys.exit(1)
        """
    )
    assert [result.step for result in told] == list(STEPS)
    assert failures(told) == [("rooms", "room 2^63 came back as -2^63")]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (ALL_OK + "sys.exit(3)", "exit code 3 after steps that were all ok"),
        (ALL_OK.replace("tell(step)", "tell(step, step != 'race')"), "exit code 0 after steps that were not all ok"),
        (ALL_OK.replace("tell(step)", "tell(step, False)"), "exit code 0 after steps that were not all ok"),
    ],
)
def test_an_exit_code_that_does_not_fit_the_steps_is_a_failure(results, body, detail):
    assert ("exit", detail) in failures(results(body))


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("tell('race')", "told of step race when register was due"),
        (line(step="race", waiting="restart"), "wrote a line without step, ok, seconds and detail"),
        ("print('Hello')", "wrote a line that is no JSON object: 'Hello'"),
        ("print('[1]')", "wrote a line that is no JSON object: '[1]'"),
        (line(step="register", ok="yes", seconds=1, detail=""), "wrote a line without step, ok, seconds and detail"),
        (line(step="register", ok=True, seconds=1), "wrote a line without step, ok, seconds and detail"),
        ("sys.exit('no such option')", "ended with exit code 1; see "),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with exit code -11; see "),
    ],
)
def test_a_program_that_leaves_its_face_fails_in_every_step_that_is_left(results, body, detail):
    told = results(body)
    assert [result.step for result in told] == list(STEPS)
    assert not any(result.ok for result in told)
    assert told[0].detail.startswith(detail)
    assert {result.detail for result in told[1:]} == {"not reached"}


def test_a_watch_that_met_no_restart_is_not_ok(results):
    told = results("for step in steps: tell(step)")
    assert failures(told)[0] == ("watch", "did not wait for the restart")
    assert [result.ok for result in told] == [True] * 3 + [False] * 7


def test_a_step_told_after_the_last_is_a_failure(results):
    assert failures(results(ALL_OK + "tell('register')")) == [("exit", "told of step register when the end was due")]


def test_a_program_that_says_nothing_is_killed_with_all_that_it_started(results, tmp_path):
    told = results(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path("child").write_text(str(child.pid))
        tell("register")
        time.sleep(600)
        """,
        silence=2,
    )
    assert failures(told)[0] == ("race", "said nothing for 2 s")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 30
    while _is_alive(child):
        assert time.monotonic() < deadline, "what the program started still runs"
        time.sleep(0.05)


def test_a_program_that_is_not_there_fails(services, tmp_path):
    program = write_program(tmp_path, "")
    program = type(program)("gone", program.tools, program.builds, ["build/gone"])
    told = list(run(program, tmp_path, services, tmp_path, tmp_path / "log"))
    assert "cannot be run" in told[0].detail or "No such file" in told[0].detail
    assert not any(result.ok for result in told)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
