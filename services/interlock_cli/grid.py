"""The rank grid: the ranks of a group as a picture in text.

A row for each (dp, cp), a block of columns for each pipeline stage, a column for each tp rank, a mark for each rank::

               pp=0      pp=1
    tp         01234567  01234567
    dp=0 cp=0  ########  ########
    dp=0 cp=1  ##.#####  ########

What does not fit is condensed: rows that follow each other and look the same become one; where there still are too many
lines, each stage becomes the number of its ranks that are live; then rows go in which all are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from interlock_cli.standing import LIVE, MISSING, UNDECLARED

if TYPE_CHECKING:
    from rich.text import Text

    from interlock.topology import ParallelSizes, RankKey

MARKS = {LIVE: "#", UNDECLARED: "?", MISSING: "."}
"""The mark of each word of a rank."""

LEGEND = "  ".join(f"{mark} {word}" for word, mark in MARKS.items())

COLOURS = {LIVE: "green", UNDECLARED: "yellow", MISSING: "red"}
"""Of each word on a terminal."""

_GAP = "  "
_ROWS_SHOWN_ONE_BY_ONE = 16


@dataclass(frozen=True)
class _Row:
    """One row, or several in a run that look the same."""

    label: str
    marks: tuple[str, ...]
    """Of each pipeline stage the marks of its tp ranks."""
    rows: int = 1

    @property
    def all_live(self) -> bool:
        return all(set(marks) == {MARKS[LIVE]} for marks in self.marks)


def grid_lines(sizes: "ParallelSizes", word: "Callable[[RankKey], str]", width: int, height: int) -> list[str]:
    """The grid of a group.

    Args:
        sizes: Those of the group.
        word: What the rank of a key is: a key of `MARKS`.
        width: Columns that the lines may take; a grid that cannot be that narrow is wider.
        height: Lines that it may have; beyond that it is condensed, and what is left over is counted.
    """
    rows = _rows(sizes, word)
    lines = _drawn(rows, sizes, width)
    if len(lines) > height:
        lines = _counted(rows, sizes, width)
    if len(lines) > height and not all(row.all_live for row in rows):
        lines = _counted([row for row in rows if not row.all_live], sizes, width)
        if all_live := sum(row.rows for row in rows if row.all_live):
            lines.insert(0, f"all live in {all_live} rows; the others:")
    if len(lines) > height:
        shown = max(1, height - 1)
        lines = [*lines[:shown], f"... and {len(lines) - shown} more lines"]
    return lines


def coloured(line: str) -> "Text":
    """A line of a grid for a terminal."""
    from rich.text import Text

    text = Text(line)
    for marks in re.finditer(r"(?<= )[#?.]+(?= |$)", line):
        for word, mark in MARKS.items():
            for run in re.finditer(re.escape(mark) + "+", marks[0]):
                text.stylize(COLOURS[word], marks.start() + run.start(), marks.start() + run.end())
    return text


def _rows(sizes: "ParallelSizes", word: "Callable[[RankKey], str]") -> list[_Row]:
    from interlock.topology import RankKey

    rows = [
        _Row(
            f"dp={dp} cp={cp}",
            tuple("".join(MARKS[word(RankKey(dp, cp, tp, pp))] for tp in range(sizes.tp)) for pp in range(sizes.pp)),
        )
        for dp in range(sizes.dp)
        for cp in range(sizes.cp)
    ]
    if len(rows) <= _ROWS_SHOWN_ONE_BY_ONE:
        return rows
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row.marks)]
    return [
        run[0] if len(run) == 1 else _Row(f"{run[0].label} to {run[-1].label}: {len(run)} rows", run[0].marks, len(run))
        for run in runs
    ]


def _drawn(rows: Sequence[_Row], sizes: "ParallelSizes", width: int) -> list[str]:
    """A mark for each rank. Where stages do not fit beside each other they go below, in bands."""
    room = _room(rows, width)
    blocks = [(pp, tp, min(tp + room, sizes.tp)) for pp in range(sizes.pp) for tp in range(0, sizes.tp, room)]
    columns = [
        (
            f"pp={pp}" if start == 0 else f"pp={pp} from tp={start}",
            "".join(str(tp % 10) for tp in range(start, stop)),
            *(row.marks[pp][start:stop] for row in rows),
        )
        for pp, start, stop in blocks
    ]
    return _bands(["", "tp", *(row.label for row in rows)], columns, room)


def _counted(rows: Sequence[_Row], sizes: "ParallelSizes", width: int) -> list[str]:
    """How many ranks of each stage are live; and how many are undeclared, where any is."""
    cells = []
    for pp in range(sizes.pp):
        texts = [f"pp={pp}"]
        for row in rows:
            live, undeclared = (row.marks[pp].count(MARKS[word]) for word in (LIVE, UNDECLARED))
            texts.append(f"{live}/{sizes.tp}" + (f" {undeclared}{MARKS[UNDECLARED]}" if undeclared else ""))
        cells.append(texts)
    return _bands(["live", *(row.label for row in rows)], cells, _room(rows, width))


def _room(rows: Sequence[_Row], width: int) -> int:
    """Columns beside the labels."""
    return max(8, width - max(len(row.label) for row in rows) - len(_GAP))


def _bands(labels: Sequence[str], columns: Sequence[Sequence[str]], room: int) -> list[str]:
    """Columns of texts beside their labels; in several bands, one below the other, where they do not fit."""
    widths = [max(map(len, column)) for column in columns]
    label_width = max(map(len, labels))
    lines: list[str] = []
    start = 0
    while start < len(columns):
        stop, taken = start + 1, widths[start]
        while stop < len(columns) and taken + len(_GAP) + widths[stop] <= room:
            taken += len(_GAP) + widths[stop]
            stop += 1
        for at, label in enumerate(labels):
            cells = (
                column[at].ljust(width) for column, width in zip(columns[start:stop], widths[start:stop], strict=True)
            )
            lines.append(_GAP.join([label.ljust(label_width), *cells]).rstrip())
        start = stop
    return lines
