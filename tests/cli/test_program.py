"""What holds for every command: help, exit codes, one line for an error."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from PIL import Image

from cli.running import COMMAND, PATIENCE, error_line
from interlock import __version__
from interlock_cli import main
from interlock_cli.errors import ExitCode


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(main))


def _help(path: tuple[str, ...]) -> str:
    command = COMMANDS[path]
    with click.Context(command, info_name=" ".join(["interlock", *path]), max_content_width=100) as context:
        return command.get_help(context)


def _examples(path: tuple[str, ...]) -> list[list[str]]:
    """The arguments of each example in a command's help."""
    examples = []
    _, _, text = _help(path).partition("Examples:\n")
    for line in text.split("\n\n")[0].splitlines():
        words = shlex.split(line.partition(" | ")[0])
        while "=" in words[0]:
            words = words[1:]
        assert words[0] == "interlock", line
        examples.append(words[1:])
    return examples


def _parse(args: list[str]) -> click.Command:
    """Parses arguments as the command line does, without running anything; gives the command that they call."""
    command: click.Command = main
    while isinstance(command, click.Group):
        command, args = command.commands[args[0]], args[1:]
    command.make_context(command.name, args)
    return command


def test_the_commands_are_these():
    assert {" ".join(path) for path in COMMANDS if path} == {
        *("bench", "check", "demo", "doctor", "info", "plan", "pools", "preprocess", "preview", "warmup"),
        *("group", "group list", "group show", "group force-epoch"),
        *("instance", "instance mint"),
        *("route", "route register", "route deregister", "route list", "route watch"),
        *("serve", "serve bootstrap", "serve preprocess", "serve all"),
        *("config", "config check"),
        *("topology", "topology export", "topology import"),
        *("token", "token new", "certs", "certs dev"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_says_what_the_command_is_for_and_has_examples_that_parse(path):
    text = _help(path)
    first_sentence = text.split("\n\n")[1].strip()
    assert len(first_sentence.split()) >= 3
    examples = _examples(path)
    assert examples
    for example in examples:
        parsed = _parse(example)
        if path and not isinstance(COMMANDS[path], click.Group):
            assert parsed is COMMANDS[path]


def test_the_examples_work_when_copied(invoke, services, tmp_path, monkeypatch):
    # All but those that run until they are stopped, and the demo, which has tests of its own.
    invoke("--version")
    monkeypatch.setenv("INTERLOCK_ADDRESS", services)
    for name in ("cat.jpg", "dog.png"):
        Image.new("RGB", (97, 61), "tan").save(tmp_path / name)
    (tmp_path / "layout.json").write_text("null")
    ran = 0
    paths = ("pools", "plan", "preprocess", "preview", "route register", "route list", "group list", "group show")
    for path in (*paths, "info", "check"):
        for example in _examples(tuple(path.split())):
            if "--address" in example:
                example[example.index("--address") + 1] = services
            result = invoke(*example)
            assert (result.exit_code, result.stderr) == (0, ""), example
            assert result.stdout, example
            ran += 1
    for example in _examples(("route", "deregister")):
        assert invoke(*example).exit_code == 0
    assert ran >= 23


def test_the_help_of_the_program_documents_every_exit_code():
    text = _help(())
    _, _, section = text.partition("Exit codes:\n")
    documented = {int(line.split()[0]) for line in section.splitlines() if line.split() and line.split()[0].isdigit()}
    assert documented == {int(code) for code in ExitCode} == {0, 1, 2, 3, 4, 70, 130, 141, 143}


def test_the_version_is_that_of_the_library(run):
    result = run("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"interlock {__version__}\n", "")


@pytest.mark.parametrize("path", ["", "group", "instance", "route", "serve"])
def test_a_group_without_a_command_shows_its_help(invoke, path):
    result = invoke(*path.split())
    assert result.exit_code == ExitCode.USAGE
    assert result.stdout.startswith(" ".join(["Usage: interlock", *path.split(), "[OPTIONS] COMMAND"]))
    assert result.stderr == ""


def test_help_is_quick_it_loads_neither_numpy_nor_grpc():
    script = (
        "import sys\n"
        "from interlock_cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'PIL', 'grpc', 'google.protobuf', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["nonsuch"], "no such command 'nonsuch'; see 'interlock --help'"),
        (["plan"], "missing argument 'WxH...'; see 'interlock plan --help'"),
        (["route", "list", "--address"], "option '--address' requires an argument; see 'interlock --help'"),
        (
            ["plan", "1600"],
            "invalid value for 'WxH...': '1600' is no size; expected WIDTHxHEIGHT in pixels, for example 1600x1200; "
            "see 'interlock plan --help'",
        ),
        (
            ["serve", "bootstrap", "--port", "many"],
            "--port: expected an integer from 0 to 65535, got 'many'; see 'interlock serve bootstrap --help'",
        ),
        (
            ["plan", "1x1", "--profile", "a", "--profile-file", "b"],
            "--profile and --profile-file exclude each other; see 'interlock plan --help'",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(run, args, line):
    result = run(*args)
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert error_line(result) == line


def test_an_error_is_one_line_with_reason_and_field_whatever_the_file_is_called(run, tmp_path):
    name = "a\nb\x1b[31m\u202e.jpg"
    (tmp_path / name).write_bytes(b"")
    result = run("preprocess", name, "-o", "out.npy")
    assert result.returncode == ExitCode.FAILED
    assert error_line(result) == r"a\nb\x1b[31m\u202e.jpg: the picture has no bytes [IMAGE_EMPTY, field encoded]"


def test_a_file_name_that_is_no_text_is_shown_escaped(run, tmp_path):
    result = run("preview", os.fsdecode(b"\xff.npy"), "-o", "out.png")
    assert result.returncode == ExitCode.FAILED
    assert error_line(result) == r"cannot read \udcff.npy: no such file or directory"


def test_with_json_an_error_is_a_document_on_stdout_too(invoke, tmp_path):
    (tmp_path / "empty.jpg").write_bytes(b"")
    result = invoke("preprocess", "empty.jpg", "-o", "out.npy", "--json")
    assert result.exit_code == ExitCode.FAILED
    assert json.loads(result.stdout) == {
        "error": {
            "message": "empty.jpg: the picture has no bytes",
            "reason": "IMAGE_EMPTY",
            "field": "encoded",
            "exit_code": 1,
        }
    }
    assert error_line(result) == "empty.jpg: the picture has no bytes [IMAGE_EMPTY, field encoded]"


@pytest.mark.parametrize("args", [["pools"], ["pools", "--json"], ["--help"], ["plan", "1x1", "2x2"]])
def test_a_reader_that_stops_reading_ends_the_command_quietly(start, args):
    process = start(*args)
    process.stdout.close()
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (ExitCode.CLOSED_OUTPUT, "")


def test_an_output_that_cannot_be_written_is_one_line(run):
    with open("/dev/full", "w") as full:
        result = run("pools", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == ExitCode.FAILED
    assert error_line(result) == "cannot write the output: no space left on device"


@pytest.mark.parametrize(
    ("number", "code", "stderr"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED, "interlock: stopped by Ctrl-C\n"),
        (signal.SIGTERM, ExitCode.TERMINATED, ""),
    ],
)
def test_a_command_that_is_stopped_leaves_no_file_and_no_traceback(start, tmp_path, number, code, stderr):
    Image.new("RGB", (8, 8)).save(tmp_path / "cat.png")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = start("preprocess", "cat.png", "-o", "out.npy", "--address", address)
        connection, _ = silent.accept()
        with connection:
            process.send_signal(number)
            answer = process.communicate(timeout=PATIENCE)
    assert (process.returncode, answer) == (code, ("", stderr))
    assert [file.name for file in tmp_path.iterdir()] == ["cat.png"]


def test_a_fault_of_the_command_itself_is_one_line_that_says_so(invoke, monkeypatch):
    monkeypatch.setattr("interlock.pools.wire_name", lambda _: 1 / 0)
    result = invoke("pools")
    assert result.exit_code == ExitCode.INTERNAL
    assert error_line(result) == (
        "internal error: ZeroDivisionError: division by zero (INTERLOCK_TRACEBACK=1 shows where)"
    )


def test_shells_complete_the_commands():
    environment = {**os.environ, "_INTERLOCK_COMPLETE": "bash_complete", "COMP_WORDS": "interlock p", "COMP_CWORD": "1"}
    result = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=True)
    assert [line.split(",")[1] for line in result.stdout.split()] == ["plan", "pools", "preprocess", "preview"]
