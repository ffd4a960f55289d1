"""Draws the figures of docs/benchmarks.md from the reports: `python -m benchmarks.figures REPORTS FIGURES`.

REPORTS is the folder that `interlock bench --output REPORTS` filled; one SVG goes into FIGURES for each report that is
there. Every bar is a ratio to the peer of the same run, so that figures of different machines can be compared.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _RIGHT = 760, 250, 70
_BAR, _GAP, _BETWEEN, _TOP = 14, 3, 10, 56

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px } .note, .value { fill: #59636e; font-size: 12px }
.one { fill: #0969da } .two { fill: #8250df } .line { stroke: #cf222e; stroke-dasharray: 4 3 } .axis { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note, .value { fill: #9198a1 }
  .one { fill: #4493f8 } .two { fill: #ab7df8 } .line { stroke: #f85149 } .axis { stroke: #3d444d }
}
"""

_COLOURS = ("one", "two")


@dataclass(frozen=True)
class Chart:
    """Horizontal bars.

    Attributes:
        title: what is shown.
        note: how to read it.
        series: names of the bars that every group has, at most two.
        groups: label of each group, with the values of its bars; None: there is none.
        line: value at which a line stands, such as the peer's own.
    """

    title: str
    note: str
    series: Sequence[str]
    groups: Sequence[tuple[str, Sequence[float | None]]]
    line: float

    def svg(self) -> str:
        """The chart as an SVG document that reads well on light and on dark."""
        group_height = len(self.series) * (_BAR + _GAP) + _BETWEEN
        bottom = _TOP + len(self.groups) * group_height
        most = max([self.line, *(value for _, values in self.groups for value in values if value is not None)])
        scale = (_WIDTH - _LEFT - _RIGHT) / most
        height = bottom + 28
        line_at = _LEFT + self.line * scale
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
                f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(self.title)}">',
                f"<style>{_STYLE}</style>",
                f'<text class="title" x="8" y="20">{escape(self.title)}</text>',
                f'<text class="note" x="8" y="40">{escape(self.note)}</text>',
                f'<line class="axis" x1="{_LEFT}" y1="{_TOP - 4}" x2="{_LEFT}" y2="{bottom}"/>',
                *(text for number in range(len(self.groups)) for text in self._group(number, group_height, scale)),
                f'<line class="line" x1="{line_at:.1f}" y1="{_TOP - 4}" x2="{line_at:.1f}" y2="{bottom}"/>',
                *self._legend(bottom + 18),
                "</svg>\n",
            ]
        )

    def _group(self, number: int, height: int, scale: float) -> Iterator[str]:
        label, values = self.groups[number]
        top = _TOP + number * height
        middle = top + (height - _BETWEEN) / 2 + 4
        yield f'<text x="{_LEFT - 8}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>'
        for place, (colour, value) in enumerate(zip(_COLOURS, values, strict=False)):
            if value is None:
                continue
            y = top + place * (_BAR + _GAP)
            width = value * scale
            yield f'<rect class="{colour}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>'
            yield f'<text class="value" x="{_LEFT + width + 5:.1f}" y="{y + 12}">{value:.3g}</text>'

    def _legend(self, y: int) -> Iterator[str]:
        x = _LEFT
        for colour, name in zip(_COLOURS, self.series, strict=False):
            yield f'<rect class="{colour}" x="{x}" y="{y - 10}" width="11" height="11" rx="2"/>'
            yield f'<text class="note" x="{x + 16}" y="{y}">{escape(name)}</text>'
            x += 30 + 7 * len(name)


def kernel_chart(report: dict[str, Any]) -> Chart:
    """Time of our kernels over the peer's, on one thread."""
    rows = [row for row in report["rows"] if row.get("threads") == 1 and "simd / peer" in row]
    groups = [
        (
            row["picture"] + (", as it is" if row["resized"] == "no" else f" to {row['resized']}"),
            (row["simd / peer"], row["numexpr / peer"]),
        )
        for row in rows
    ]
    note = "over that of SGLang's Rust kernel, the red line; one thread; shorter is faster"
    return Chart("Time from RGB to bf16 patches", note, ("simd", "numexpr"), groups, 1.0)


def service_chart(report: dict[str, Any]) -> Chart:
    """Pictures a second through the service over those in a frontend's own process."""
    groups = [(row["picture"], (row["ratio"],)) for row in report["rows"] if "ratio" in row]
    note = "over Pillow and SGLang's Rust kernel in the caller's own process, the red line; longer is faster"
    return Chart("Pictures a second through the service, over TCP", note, ("the service",), groups, 1.0)


def topology_chart(report: dict[str, Any]) -> Chart:
    """Time until a topology is registered and known over the peer's."""
    groups = [
        (f"{row['what']}, beside {_client(row)}", (row["ratio"],))
        for row in report["rows"]
        if "ratio" in row and row["unit"] == "s"
    ]
    note = "over SGLang's Rust registry in memory, the red line; ours on SQLite; shorter is faster"
    return Chart("Time until 512 ranks are registered, and known", note, ("Bootstrap",), groups, 1.0)


def _client(row: dict[str, Any]) -> str:
    """Name of the peer's client, without its version."""
    return str(row["peer's client"]).partition(" ")[0]


CHARTS = {"kernel": kernel_chart, "service": service_chart, "topology": topology_chart}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").splitlines()[0])
    reports, figures = map(Path, sys.argv[1:])
    figures.mkdir(parents=True, exist_ok=True)
    for name, chart_of in CHARTS.items():
        if not (file := reports / f"{name}.json").is_file():
            continue
        chart = chart_of(json.loads(file.read_text()))
        if not chart.groups:
            sys.exit(f"{file} has nothing beside the peer; measure with --peers")
        (figures / f"{name}.svg").write_text(chart.svg())
        print(f"{figures / name}.svg")


if __name__ == "__main__":
    main()
