"""`interlock demo --clients`."""

import json
from pathlib import Path

import pytest

from cli.clients.scripted import ALL_OK, write_program
from cli.running import error_line
from interlock_cli.demo.clients import checkout, programs
from interlock_cli.demo.clients.programs import PROGRAMS, Program

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clients(tmp_path, monkeypatch):
    """A checkout whose programs are these bodies."""

    def make(*added: Program, **bodies: str) -> None:
        root = tmp_path / "checkout"
        (root / "tests").mkdir(parents=True)
        for part in ("tests/data", "vectors"):
            (root / part).symlink_to(ROOT / part)
        folder = root / "examples" / "clients"
        written = [write_program(folder / name, body, language=name) for name, body in bodies.items()]
        monkeypatch.setattr(programs, "PROGRAMS", (*written, *added))
        monkeypatch.setattr(checkout, "_AROUND_THIS_FILE", root)

    return make


def test_every_step_of_every_language_is_shown(invoke, clients, tmp_path):
    clients(one=ALL_OK, two=ALL_OK)
    result = invoke("demo", "--clients")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "All 22 steps of 2 languages are ok" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if " ok " in line]
    assert [row[:3] for row in rows[1:4]] == [
        ["one", "register", "ok"],
        ["one", "race", "ok"],
        ["one", "mismatch", "ok"],
    ]
    assert len(rows) == 22
    assert {log.name for log in (tmp_path / "demo-output").iterdir()} == {
        "one.log",
        "two.log",
        "bootstrap.log",
        "preprocess.log",
    }


def test_one_failed_step_of_one_language_is_named_and_the_others_run_on(invoke, clients):
    clients(one=ALL_OK.replace("tell(step)", "tell(step, step != 'rooms')") + "sys.exit(1)", two=ALL_OK)
    result = invoke("demo", "--clients", "--json")
    assert result.exit_code == 1
    assert error_line(result) == "1 of 22 steps failed; the first is rooms of one: as asked"
    results = json.loads(result.stdout)["error"]["results"]
    assert [(row["language"], row["step"]) for row in results if not row["ok"]] == [("one", "rooms")]
    assert sum(row["ok"] for row in results if row["language"] == "two") == 11


def test_a_missing_tool_is_named_and_is_a_failure(invoke, clients):
    lacking = Program("cobol", tools=["python3", "no-such-compiler"], builds=[["no-such-compiler"]], run=["x"])
    clients(lacking, one=ALL_OK)
    result = invoke("demo", "--clients")
    assert result.exit_code == 1
    assert error_line(result) == "11 of 22 steps failed; the first is build of cobol: not installed: no-such-compiler"
    assert invoke("demo", "--clients", "--only", "one").exit_code == 0


def test_a_build_that_fails_is_told_with_its_log(invoke, clients, tmp_path):
    clients(one="this is no Python")
    result = invoke("demo", "--clients")
    assert result.exit_code == 1
    assert "-m py_compile main.py` ended with exit code 1; see " in error_line(result)
    assert "SyntaxError" in (tmp_path / "demo-output" / "one.log").read_text()


def test_without_a_checkout_it_says_what_is_missing(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "_AROUND_THIS_FILE", tmp_path)
    result = invoke("demo", "--clients")
    assert result.exit_code == 1
    assert error_line(result) == (
        "the client programs are not part of an installed interlock: clone its repository and run this inside it"
    )


def test_the_checkout_around_the_current_folder_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "_AROUND_THIS_FILE", tmp_path)
    monkeypatch.chdir(ROOT / "docs")
    assert checkout.find_checkout().root == ROOT


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--only", "go"], "--only goes with --clients; see 'interlock demo --help'"),
        (
            ["--clients", "--only", "go,perl"],
            "no client is written in 'perl'; there are go, rust, node, java, cpp; see 'interlock demo --help'",
        ),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_starts(invoke, arguments, line):
    result = invoke("demo", *arguments)
    assert (result.exit_code, error_line(result)) == (2, line)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.language)
def test_every_program_has_its_folder_with_a_page_about_it(program):
    assert (ROOT / "examples" / "clients" / program.language / "README.md").is_file()
