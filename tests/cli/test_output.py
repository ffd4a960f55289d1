"""Tables and JSON."""

import os
import pty
import subprocess

from cli.running import COMMAND
from interlock_cli.output import echo_table


def test_elsewhere_than_on_a_terminal_a_table_is_plain_aligned_text_of_any_width(capsys):
    echo_table(
        ["NAME", "NUMBER", "ANSWER"],
        [("x" * 200, 7, True), ("é", 1234, None), ("[bold]a[/bold]\n\x1b[31m", None, False)],
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME" + " " * 198 + "NUMBER  ANSWER",
        "x" * 200 + "       7  yes",
        "é" + " " * 201 + "  1234  -",
        r"[bold]a[/bold]\n\x1b[31m" + " " * 178 + "     -  no",
    ]


def test_a_table_without_rows_is_its_heading(capsys):
    echo_table(["A", "B"], [])
    assert capsys.readouterr().out == "A  B\n"


def _on_a_terminal(columns, *args):
    """The exit code, and what a terminal of so many columns shows, line by line."""
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen([*COMMAND, *args], stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # how Linux tells that the other side was closed
            pass
    os.close(ours)
    return process.returncode, shown.decode().splitlines()


def test_on_a_terminal_a_table_is_drawn_and_only_its_widest_column_wraps():
    exit_code, lines = _on_a_terminal(110, "plan", "1600x1200", "1x42924")
    assert exit_code == 1
    assert lines[0][0] == "╭"
    assert max(map(len, (line for line in lines if "\x1b" not in line))) <= 110
    [row] = [line for line in lines if "1600x1200" in line]
    assert "│ 1600x1200 │ 1512x1134 │ 1512x1134 │    0 │   0 │ 108x81  │ 36x27      │   1001 │ " in row


def test_on_a_terminal_of_80_columns_headers_wrap_between_words():
    _, lines = _on_a_terminal(80, "plan", "1600x1200")
    assert "│ 1600x1200 │ 1512x1134 │ 1512x1134 │    0 │   0 │ 108x81  │ 36x27    │   1001 │" in lines


def test_on_a_terminal_too_narrow_to_keep_words_whole_a_table_is_plain_text():
    assert _on_a_terminal(40, "plan", "1600x1200") == (
        0,
        [
            "SIZE       RESIZE     CANVAS     LEFT  TOP  PATCHES  TOKEN GRID  TOKENS",
            "1600x1200  1512x1134  1512x1134     0    0  108x81   36x27         1001",
        ],
    )
