"""What all benchmarks share: taking turns, medians, and one way to say what came out."""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import groupby
from typing import Any


def medians(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, measured by turns so that a busy moment hits all alike. One round warms up."""
    if rounds < 7:
        raise ValueError(f"{rounds} rounds; a median of fewer than 7 says little")
    return median_readings({name: partial(_milliseconds, contender) for name, contender in contenders.items()}, rounds)


def median_readings(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Medians of what contenders measured themselves, by turns as in `medians`."""
    readings: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(rounds + 1):
        for name, contender in contenders.items():
            reading = contender()
            if round_number > 0:
                readings[name].append(reading)
    return {name: statistics.median(some) for name, some in readings.items()}


def _milliseconds(contender: Callable[[], object]) -> float:
    start = time.perf_counter()
    contender()
    return (time.perf_counter() - start) * 1e3


@dataclass(frozen=True)
class Goal:
    """A figure that a change must keep."""

    name: str
    value: float
    limit: float
    better: str

    @property
    def met(self) -> bool:
        """Whether the value is on the right side of the limit, or on it."""
        return self.value <= self.limit if self.better == "lower" else self.value >= self.limit


@dataclass
class Report:
    """Rows of one benchmark and the goals they are held to."""

    benchmark: str
    rounds: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    machine: str = f"{platform.machine()}, {os.cpu_count()} cores"

    def show(self, as_json: bool, packages: Sequence[str]) -> None:
        """Print the report: one JSON object, or a table."""
        setting = {
            "benchmark": self.benchmark,
            "rounds": self.rounds,
            "machine": self.machine,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        }
        if as_json:
            goals = [asdict(goal) | {"met": goal.met} for goal in self.goals]
            print(json.dumps(setting | {"rows": self.rows, "goals": goals}, indent=1))
            return
        print(", ".join(f"{name} {value}" for name, value in setting.items()))
        for _, rows in groupby(self.rows, key=lambda row: row.get("what")):
            print(table([*rows]))
        for goal in self.goals:
            print(
                f"{goal.name}: {goal.value:.3g}, {goal.better} than {goal.limit:g}: {'met' if goal.met else 'MISSED'}"
            )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as aligned text, with the columns that any of them has."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)
    return "\n".join(lines)


def parse_options(
    description: str,
    rounds: int,
    quick_rounds: int,
    more_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> tuple[argparse.Namespace, int]:
    """The options that every benchmark has, and `more_options`; and how many rounds they ask for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--peers", metavar="DIR", help="folder with the peers' packages, to measure side by side")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 60 seconds")
    if more_options is not None:
        more_options(parser)
    options = parser.parse_args()
    return options, quick_rounds if options.quick else rounds


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
