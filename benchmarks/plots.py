"""Writes the page of current figures: `python -m benchmarks.plots REPORTS PAGE.md`, as `make bench` does.

REPORTS is the folder that `interlock bench --output REPORTS` filled. The plots are SVG files of a few kilobytes in the
folder `figures` beside the page, drawn here line by line, so that a difference between two commits can be read; their
colours follow the reader's scheme.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.service.rows import FORMATS, RATES, WAYS

_ROW, _BAR, _TITLE, _FOOT = 22, 15, 34, 26
_LABELS, _BARS, _VALUES = 250, 330, 120

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-size: 14px; font-weight: 600 }
.quiet { fill: #57606a }
.ours { fill: #0969da } .peer { fill: #8c959f } .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 }
.ours { fill: #4493f8 } .peer { fill: #6e7681 } .limit { stroke: #ff7b72 }
}"""


_SIGNS = {"lower": "<=", "higher": ">="}


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: what it is; empty: one more bar of what stands above.
        value: its length, in the unit of the figure.
        text: what stands behind it.
        peer: whether it is the peer's.
    """

    label: str
    value: float
    text: str
    peer: bool = False


def figure(title: str, bars: Sequence[Bar], foot: str, limit: float | None = None) -> str:
    """A figure of horizontal bars, as SVG.

    Args:
        title: what is shown, and in which unit.
        bars: from the top.
        foot: a line below.
        limit: where a goal stands; None: there is none.
    """
    longest = max([bar.value for bar in bars] + ([limit] if limit is not None else []))
    scale = _BARS / longest
    width, height = _LABELS + _BARS + _VALUES, _TITLE + _ROW * len(bars) + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="16">{escape(title)}</text>',
    ]
    for number, bar in enumerate(bars):
        top = _TITLE + number * _ROW
        length, kind = max(bar.value * scale, 1), "peer" if bar.peer else "ours"
        parts += [
            f'<text x="{_LABELS - 8}" y="{top + 12}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{_LABELS}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2"/>',
            f'<text class="quiet" x="{_LABELS + length + 6:.1f}" y="{top + 12}">{escape(bar.text)}</text>',
        ]
    if limit is not None:
        x = _LABELS + limit * scale
        parts.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_TITLE - 6}" y2="{height - _FOOT}"/>')
    parts.append(f'<text class="quiet" x="0" y="{height - 6}">{escape(foot)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def kernel(report: Mapping[str, Any]) -> dict[str, str]:
    """Time of the kernels over the peer's."""
    rows = [row for row in report["rows"] if "simd / peer" in row]
    figures = {}
    for threads in sorted({row["threads"] for row in rows}):
        bars = [
            Bar(f"{row['picture']} to {row['resized']}", row["simd / peer"], f"{row['simd / peer']:.3f}")
            for row in rows
            if row["threads"] == threads
        ]
        title = f"Kernel simd, {threads} thread{'s' * (threads > 1)}: time over the peer's"
        figures[f"kernel-{threads}-threads"] = figure(title, bars, _foot(report))
    return figures


def service(report: Mapping[str, Any]) -> dict[str, str]:
    """Pictures a second beside the peer, the ways through, and how long callers wait."""
    figures = {}
    for name, what in (("service-rates", RATES), ("service-formats", FORMATS)):
        bars = []
        for row in report["rows"]:
            if row.get("what") == what and "peer" in row:
                bars += [
                    Bar(row["picture"], row["ratio"], f"{row['ratio']:.2f} ({row['ours']:.0f} a second)"),
                    Bar("", 1.0, f"peer ({row['peer']:.0f} a second)", peer=True),
                ]
        if bars:
            title = "Pictures a second, over the peer's"
            figures[name] = figure(title, bars, _foot(report))
    ways = [row for row in report["rows"] if row.get("what") == WAYS]
    if ways:
        bars = [Bar(row["way"], row["ms, 1 at a time"], f"{row['ms, 1 at a time']:.1f} ms") for row in ways]
        title = f"{ways[0]['picture']}, one at a time: ms until the whole array is there"
        figures["service-ways"] = figure(title, bars, _foot(report))
    return figures


def goals(report: Mapping[str, Any]) -> dict[str, str]:
    """Each goal's value over its limit."""
    bars = []
    for goal in report["goals"]:
        if goal["limit"]:
            share = goal["value"] / goal["limit"] if goal["better"] == "lower" else goal["limit"] / goal["value"]
            text = f"{goal['value']:.3g} ({_SIGNS[goal['better']]} {goal['limit']:g})"
            bars.append(Bar(goal["name"], share, text))
    title = f"Goals of {report['benchmark']}: share of the limit that is used (the line is the limit)"
    return {f"{report['benchmark']}-goals": figure(title, bars, _foot(report), limit=1.0)} if bars else {}


DRAWN: Mapping[str, Sequence[Callable[[Mapping[str, Any]], dict[str, str]]]] = {
    "kernel": (kernel, goals),
    "service": (service, goals),
    "topology": (goals,),
    "decoding": (),
}


def _foot(report: Mapping[str, Any]) -> str:
    versions = report["versions"]
    return f"{report['machine']}, Python {versions['python']}, medians of {report['rounds']}"


def page(reports: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> str:
    """The page, as Markdown.

    Args:
        reports: each with the names of its plots.
    """
    lines = [_PREFACE]
    for report, plots in reports:
        versions = ", ".join(f"{package} {number}" for package, number in report["versions"].items())
        lines += [f"## {report['benchmark'].capitalize()}", ""]
        lines += [f"{report['machine']}; medians of {report['rounds']}; {versions}.", ""]
        for plot in plots:
            lines += [f"![{plot}](figures/{plot}.svg)", ""]
        if report["goals"]:
            met = [
                {
                    "goal": f"`{goal['name']}`",
                    "value": goal["value"],
                    "limit": f"{_SIGNS[goal['better']]} {goal['limit']:g}",
                    "met": "yes" if goal["met"] else "**no**",
                }
                for goal in report["goals"]
            ]
            lines += [*_table(met), ""]
        for _, rows in groupby(report["rows"], key=lambda row: row.get("what")):
            lines += [*_table([*rows]), ""]
    return "\n".join(lines)


_PREFACE = """# Current figures

Made by `make bench`, which measures anew and overwrites this page; [benchmarks.md](benchmarks.md) tells what the rows
mean and how they are measured.
"""


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *cells)]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(reports: str, page_file: str) -> None:
    """Writes the page and its plots from all reports of a folder."""
    folder = Path(page_file).parent / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    told = []
    for path in sorted(Path(reports).glob("*.json")):
        report = json.loads(path.read_text())
        plots = {name: svg for draw in DRAWN[report["benchmark"]] for name, svg in draw(report).items()}
        for name, svg in plots.items():
            (folder / f"{name}.svg").write_text(svg)
        told.append((report, [*plots]))
    Path(page_file).write_text(page(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
