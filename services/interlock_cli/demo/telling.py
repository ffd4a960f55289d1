"""How the demo tells its story: to a person as it goes, or for a program at its end."""

from collections.abc import Sequence
from typing import Any

import click

from interlock_cli.output import Row, echo_table


class NotAsToldError(Exception):
    """Something did not turn out as the story says."""


def expect(as_told: bool, otherwise: str) -> None:
    """Goes on only if a step turned out as told.

    Raises:
        NotAsToldError: It did not; `otherwise` says what happened instead.
    """
    if not as_told:
        raise NotAsToldError(otherwise)


class Teller:
    """Shows the steps, or only records them."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self.steps: list[dict[str, Any]] = []
        """What was told, for `--json`."""

    def step(self, title: str) -> None:
        """Begins a step."""
        self.steps.append({"step": len(self.steps) + 1, "title": title, "shown": []})
        if not self._quiet:
            click.secho(f"\n{len(self.steps)}. {title}", bold=True)

    def say(self, text: str) -> None:
        """Shows a sentence, or several lines."""
        self.steps[-1]["shown"].append(text)
        if not self._quiet:
            click.echo(text)

    def table(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Shows a table."""
        names = [column.lower().replace(" ", "_") for column in columns]
        self.steps[-1]["shown"].append([dict(zip(names, map(_plain, row), strict=True)) for row in rows])
        if not self._quiet:
            echo_table(columns, rows)


def _plain(cell: object) -> object:
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)
