"""Figures are drawn from reports: a bar for each ratio, at its scale, beside the peer's line."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"

REPORTS = {
    "kernel": [
        {"picture": "640x480", "resized": "308x238", "threads": 1, "simd / peer": 0.1, "numexpr / peer": 0.9},
        {"picture": "2016x1512", "resized": "no", "threads": 1, "simd / peer": 0.2, "numexpr / peer": 0.5},
        {"picture": "640x480", "resized": "308x238", "threads": 2, "simd / peer": 0.3, "numexpr / peer": 0.8},
    ],
    "service": [
        {"what": "pictures a second", "picture": "<a & b>", "ratio": 3.0},
        {"what": "memory, MiB", "picture": "a"},
    ],
    "topology": [{"what": "registration", "unit": "s", "peer's client": "requests 2.34", "ratio": 0.5}],
}
EXPECTED = {
    "kernel": (["0.1", "0.9", "0.2", "0.5"], ["640x480 to 308x238", "2016x1512, as it is"]),
    "service": (["3"], ["<a & b>"]),
    "topology": (["0.5"], ["registration, beside requests"]),
}


def drawn(folder, *names):
    (folder / "reports").mkdir()
    for name in names:
        (folder / "reports" / f"{name}.json").write_text(json.dumps({"rows": REPORTS[name]}))
    command = [sys.executable, "-m", "benchmarks.figures", folder / "reports", folder / "figures"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return {file.stem: ElementTree.parse(file).getroot() for file in (folder / "figures").iterdir()}


@pytest.mark.parametrize("name", REPORTS)
def test_a_bar_stands_for_each_ratio(tmp_path, name):
    (svg,) = drawn(tmp_path, name).values()
    texts = [(text.get("class"), text.text) for text in svg.iter(f"{SVG}text")]
    values, labels = EXPECTED[name]
    assert [text for kind, text in texts if kind == "value"] == values
    assert [text for kind, text in texts if kind is None] == labels
    bars = [float(bar.get("width")) for bar in svg.iter(f"{SVG}rect") if bar.get("height") == "14"]
    (line,) = (line for line in svg.iter(f"{SVG}line") if line.get("class") == "line")
    whole = float(line.get("x1")) - 250
    assert [round(bar / whole, 2) for bar in bars] == [float(value) for value in values]


def test_only_reports_that_are_there_are_drawn(tmp_path):
    assert drawn(tmp_path, "kernel", "topology").keys() == {"kernel", "topology"}
