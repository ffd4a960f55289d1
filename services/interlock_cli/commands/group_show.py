"""`interlock group show`."""

from itertools import islice
from typing import TYPE_CHECKING

import click

from interlock_cli.errors import CommandError
from interlock_cli.grid import LEGEND, coloured, grid_lines
from interlock_cli.output import echo_json, echo_lines, echo_table, json_option, output_width
from interlock_cli.services import bootstrap_at, bootstrap_options, snapshot_of
from interlock_cli.standing import MISSING, Standing, key_ranges
from interlock_cli.texts import instance_text, state_word

if TYPE_CHECKING:
    from collections.abc import Iterable

_GRID_LINES = 40
_LISTED = 16
"""Lines of missing or undeclared ranks."""


@click.command()
@click.argument("name", metavar="NAME")
@bootstrap_options
@json_option
def show(name: str, address: str, timeout: float, as_json: bool) -> None:
    """Show group NAME: its ranks as a grid, what it lacks and why, and what its ranks share.

    The grid has a row for each data- and context-parallel rank (dp, cp), a block of columns for each pipeline stage
    (pp), and a column for each tensor-parallel rank (tp). A live rank has a route; an undeclared one has a route that
    has yet to declare what another one declared; a missing one has no route in this epoch: it never came, was
    deregistered, or its lease ran out. Large groups are condensed: --json and `interlock route list` have every rank.

    \b
    Examples:
      interlock group show prefill-a
      interlock group show prefill-a --json | jq .undeclared
    """
    from interlock.reasons import Reason
    from interlock_cli.documents import contract_rows, document

    with bootstrap_at(address, timeout) as client:
        standing = Standing(snapshot_of(client, name, timeout))
    state = standing.state
    if state.revision == 0:
        raise CommandError(f"nobody has registered in group {name!r}", reason=Reason.UNKNOWN_GROUP, field="group")
    undeclared = [(key, standing.undeclared_fields(key)) for key in sorted(standing.undeclared)]
    if as_json:
        echo_json(
            {
                "state": document(state),
                "contract": document(standing.contract),
                "missing": [document(key) for key in standing.missing()],
                "undeclared": [{"key": document(key), "fields": fields} for key, fields in undeclared],
            }
        )
        return
    echo_table(
        ["GROUP", state.group],
        [
            ("state", f"{state_word(state)}: {standing.progress()}" if state.registered else "empty: no live route"),
            ("revision", str(state.revision)),
            ("epoch", str(state.epoch)),
            ("instance", instance_text(state.instance)),
            ("floor", instance_text(state.floor)),
        ],
    )
    if standing.sizes is None or standing.contract is None:
        return
    click.echo(f"\nranks: {LEGEND}")
    echo_lines(grid_lines(standing.sizes, standing.word, output_width(), _GRID_LINES), coloured)
    if state.missing_count:
        click.echo(f"\n{MISSING}: no route in epoch {state.epoch} (never came, was deregistered, or its lease ran out)")
        _echo_listed(key_ranges(standing.missing()))
    if undeclared:
        click.echo("\nundeclared: registered, and yet to declare what another rank declared")
        _echo_listed(f"{key}: {', '.join(fields)}" for key, fields in undeclared)
    click.echo()
    echo_table(["SHARED BY ITS RANKS", "VALUE"], contract_rows(standing.contract))


def _echo_listed(lines: "Iterable[str]") -> None:
    rest = iter(lines)
    for line in islice(rest, _LISTED):
        click.echo(f"  {line}")
    if more := sum(1 for _ in rest):
        click.echo(f"  ... and {more} more lines; --json has all")
