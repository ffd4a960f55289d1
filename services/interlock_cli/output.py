"""Answers on stdout: tables for people, JSON for programs."""

import functools
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from interlock_cli.errors import CommandError, printable

if TYPE_CHECKING:
    from rich.text import Text

_P = ParamSpec("_P")

Row = Sequence[object]

_LEAST_WRAPPED_WIDTH = 20


def json_option(command: Callable[_P, None]) -> Callable[_P, None]:
    """Gives a command `--json`, handed over as `as_json`. With it, an error is a JSON document on stdout too."""

    @click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CommandError as error:
            if kwargs["as_json"]:
                echo_json({"error": error.document()})
            raise

    return run


def echo_json(document: Mapping[str, Any], *, line: bool = False) -> None:
    """Writes one JSON document, or one JSON line of a stream of them."""
    click.echo(json.dumps(document, indent=None if line else 2, allow_nan=False))


def echo_table(columns: Sequence[str], rows: Sequence[Row], *, title: str = "") -> None:
    """Writes a table; the title, if there is one, on a line before it.

    On a terminal that has the room it is drawn by rich, and its widest column wraps. Elsewhere it is plain aligned
    text, as wide as it needs to be, one line a row.
    """
    texts = [[_cell(cell) for cell in row] for row in rows]
    lines = [list(columns), *texts]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    numeric = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    if title:
        click.echo(title)
    if sys.stdout.isatty() and _drawn(columns, texts, numeric):
        return
    for line in lines:
        cells = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True))
        click.echo("  ".join(cells).rstrip())


def _drawn(columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> bool:
    """Draws the table, if all but its widest column keep their words whole: half a number is worse than no frame."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells_of_columns = list(zip(columns, *texts, strict=True))
    widths = [max(map(len, cells)) for cells in cells_of_columns]
    words = [max(len(word) for cell in cells for word in cell.split()) for cells in cells_of_columns]
    widest = widths.index(max(widths))
    words[widest] = min(words[widest], _LEAST_WRAPPED_WIDTH)
    console = Console()
    room = console.width - 3 * len(columns) - 1
    if room < sum(words):
        return False
    table = Table(box=box.ROUNDED, header_style="bold")
    # Only the widest column is wrapped, if that is enough.
    enough = room - sum(widths) + widths[widest] >= _LEAST_WRAPPED_WIDTH
    for i, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if numeric[i] else "left",
            no_wrap=enough and i != widest,
            min_width=words[i],
            overflow="fold",
        )
    for line in texts:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)
    return True


def _is_number(cell: object) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _cell(cell: object) -> str:
    """A cell as text: what is absent is a dash."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.1f}"
    return printable(str(cell))


def output_width() -> int:
    """Columns that output may take: those of the terminal (or of COLUMNS), else 100."""
    return shutil.get_terminal_size((100, 24)).columns


def echo_lines(lines: Sequence[str], coloured: "Callable[[str], Text]") -> None:
    """Writes lines; in colours on a terminal."""
    if not sys.stdout.isatty():
        click.echo("\n".join(lines))
        return
    from rich.console import Console

    console = Console()
    for line in lines:
        console.print(coloured(line), soft_wrap=True)
