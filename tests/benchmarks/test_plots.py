"""The page of figures: plots well-formed, with every label and value, in both schemes, and small; and the tables."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"

REPORT = {
    "benchmark": "service",
    "rounds": 9,
    "machine": "x86_64, 2 cores",
    "versions": {"python": "3.11.7"},
    "rows": [
        {"what": "pictures a second", "picture": "12 MP <JPEG>", "ours": 36.5, "peer": 12.0, "ratio": 3.04},
        {"what": "pictures a second", "picture": "alone", "ours": 36.5},
        {"what": "a way through", "picture": "12 MP", "way": "TCP", "ms, 1 at a time": 40.0},
        {"what": "a way through", "picture": "12 MP", "way": "shared memory", "ms, 1 at a time": 4.0},
    ],
    "goals": [
        {"name": "ratio", "value": 4.0, "limit": 3.0, "better": "higher", "met": True},
        {"name": "share", "value": 0.2, "limit": 0.1, "better": "lower", "met": False},
        {"name": "failures", "value": 0, "limit": 0.0, "better": "lower", "met": True},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With `page.md` and the plots in `figures`."""
    folder = tmp_path_factory.mktemp("plots")
    (folder / "reports").mkdir()
    (folder / "reports" / "service.json").write_text(json.dumps(REPORT))
    command = [sys.executable, "-m", "benchmarks.plots", str(folder / "reports"), str(folder / "page.md")]
    subprocess.run(command, env={"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}, check=True)
    return folder


@pytest.fixture(scope="module")
def figures(folder) -> dict[str, ElementTree.Element]:
    return {path.stem: ElementTree.parse(path).getroot() for path in (folder / "figures").iterdir()}


def texts(figure: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in figure.iter(f"{SVG}text")]


def widths(figure: ElementTree.Element) -> list[float]:
    return [float(bar.attrib["width"]) for bar in figure.iter(f"{SVG}rect")]


def test_each_report_gives_its_figures_of_a_few_kilobytes(folder, figures):
    assert sorted(figures) == ["service-goals", "service-rates", "service-ways"]
    assert all(path.stat().st_size < 8_000 for path in (folder / "figures").iterdir())


def test_the_page_shows_every_figure_goal_and_row(folder):
    text = (folder / "page.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("![")] == [
        "![service-rates](figures/service-rates.svg)",
        "![service-ways](figures/service-ways.svg)",
        "![service-goals](figures/service-goals.svg)",
    ]
    assert "x86_64, 2 cores; medians of 9; python 3.11.7." in text
    for line in (
        "| goal | value | limit | met |",
        "| `ratio` | 4 | >= 3 | yes |",
        "| `share` | 0.2 | <= 0.1 | **no** |",
        "| what | picture | ours | peer | ratio |",
        "| pictures a second | 12 MP <JPEG> | 36.5 | 12 | 3.04 |",
        "| pictures a second | alone | 36.5 |  |  |",
        "| a way through | 12 MP | shared memory | 4 |",
    ):
        assert line in text.splitlines()


def test_rates_stand_beside_the_peer(figures):
    rates = figures["service-rates"]
    assert texts(rates)[1:-1] == ["12 MP <JPEG>", "3.04 (36 a second)", "", "peer (12 a second)"]
    ours, peer = widths(rates)
    assert ours / peer == pytest.approx(3.04, rel=0.01)


def test_bars_are_as_long_as_what_they_stand_for(figures):
    slow, fast = widths(figures["service-ways"])
    assert slow / fast == pytest.approx(10, rel=0.01)


def test_a_goal_that_is_missed_goes_beyond_the_line(figures):
    goals = figures["service-goals"]
    (line,) = goals.iter(f"{SVG}line")
    limit = float(line.attrib["x1"]) - float(next(goals.iter(f"{SVG}rect")).attrib["x"])
    met, missed = widths(goals)
    assert met == pytest.approx(limit * 0.75, abs=0.2)
    assert missed == pytest.approx(limit * 2, abs=0.2)


def test_colours_follow_the_reader_and_the_figure_says_how_it_was_measured(figures):
    for figure in figures.values():
        (style,) = figure.iter(f"{SVG}style")
        assert "prefers-color-scheme: dark" in (style.text or "")
        assert texts(figure)[-1] == "x86_64, 2 cores, Python 3.11.7, medians of 9"
