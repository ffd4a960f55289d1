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


def test_on_a_terminal_a_table_is_drawn_and_only_its_widest_column_wraps():
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", "110"], stdin=theirs, check=True)
    environment = {**os.environ, "TERM": "xterm"}
    command = [*COMMAND, "plan", "1600x1200", "1x42924"]
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # how Linux tells that the other side was closed
            pass
    os.close(ours)
    assert process.returncode == 1
    lines = shown.decode().splitlines()
    assert lines[0][0] == "╭"
    assert max(map(len, (line for line in lines if "\x1b" not in line))) <= 110
    [row] = [line for line in lines if "1600x1200" in line]
    assert "│ 1600x1200 │ 1512x1134 │ 1512x1134 │    0 │   0 │ 108x81  │ 36x27      │   1001 │ " in row
