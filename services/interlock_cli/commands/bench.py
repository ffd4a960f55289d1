"""`interlock bench`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from interlock_cli.errors import CommandError, one_line, printable
from interlock_cli.files import cannot
from interlock_cli.output import echo_json, echo_table, json_option

_NAMES = ("kernel", "decoding", "topology", "service")

_SECONDS_TO_END = 20.0


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(_NAMES))
@click.option("--quick", is_flag=True, help="Fewer rounds and rows: about a minute each, in place of several.")
@click.option(
    "--peers",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="INTERLOCK_PEERS",
    show_envvar=True,
    metavar="FOLDER",
    help="Folder with the peers' packages, to measure side by side: pip install --no-deps --target FOLDER "
    "sglang==0.5.23",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Also write each report there, as NAME.json; made if missing.",
)
@json_option
def bench(names: tuple[str, ...], quick: bool, peers: Path | None, output: Path | None, as_json: bool) -> None:
    """Measure this machine: kernel, decoding, topology (the Bootstrap service), service (the Preprocess service).

    Without a NAME all run, one after the other. Goals are ratios to a peer measured in the same run, so most of them
    need --peers; whether they are met does not change the exit code. The machine should have nothing else to do.

    \b
    Examples:
      interlock bench service --quick
      interlock bench --peers peers --output figures
      interlock bench kernel --json
    """
    folder = _folder()
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise cannot("make folder", output, error) from None
    if peers is not None and not peers.is_dir():
        raise click.BadParameter(f"there is no folder {printable(str(peers))}", param_hint="--peers")
    flags = [*(["--quick"] if quick else []), *(["--peers", str(peers.absolute())] if peers else [])]
    reports = []
    for name in dict.fromkeys(names or _NAMES):
        click.echo(f"interlock: measuring {name}", err=True)
        text = _run(folder, name, flags)
        if output is not None:
            try:
                (output / f"{name}.json").write_text(text)
            except OSError as error:
                raise cannot("write", output / f"{name}.json", error) from None
        reports.append(json.loads(text))
        if not as_json:
            _show(reports[-1])
    if as_json:
        echo_json({"benchmarks": reports})


def _folder() -> Path:
    """The folder with the package `benchmarks`: in the wheel below this package, in a checkout at the top."""
    package = Path(__file__).parents[1]
    for folder in (package / "bundled", package.parents[1]):
        if (folder / "benchmarks" / "report.py").is_file():
            return folder
    raise CommandError(
        "this installation has no benchmarks; they are in the wheel and in a checkout of the source, where "
        "`python -m benchmarks.service` runs one too"
    )


def _run(folder: Path, name: str, flags: Sequence[str]) -> str:
    """Runs one benchmark in a process of its own; the JSON that it printed."""
    # In its own folder, for Python looks first where it is started, and someone else's `benchmarks` may be there.
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join([str(folder), *map(os.path.abspath, named)])
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{name}", "--json", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
    )
    with process:
        try:
            answer, complaint = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends the servers that it started
            try:
                process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if process.returncode:
        last = (complaint.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise CommandError(f"the benchmark {name} failed: {one_line(last)}")
    return answer


def _show(report: dict[str, Any]) -> None:
    """A report as tables: rows that measure the same thing together, then the goals."""
    versions = ", ".join(f"{package} {number}" for package, number in report["versions"].items())
    click.echo(f"\n{report['benchmark']}: {report['machine']}, {report['rounds']} rounds; {versions}\n")
    for what, rows in groupby(report["rows"], key=lambda row: row.get("what", "")):
        alike = [*rows]
        columns = [*dict.fromkeys(column for row in alike for column in row if column != "what")]
        echo_table(
            [column.upper() for column in columns],
            [[_rounded(row.get(column)) for column in columns] for row in alike],
            title=what,
        )
        click.echo()
    if report["goals"]:
        echo_table(
            ["GOAL", "VALUE", "LIMIT", "MET"],
            [
                (goal["name"], _rounded(goal["value"]), f"{_SIGNS[goal['better']]} {goal['limit']:g}", goal["met"])
                for goal in report["goals"]
            ],
        )


_SIGNS = {"lower": "<=", "higher": ">="}


def _rounded(value: object) -> object:
    """Three digits of a measured number say enough."""
    return f"{value:.3g}" if isinstance(value, float) else value
