"""`interlock route list`."""

import click

from interlock_cli.errors import CommandError
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.services import bootstrap_at, bootstrap_options, snapshot_of
from interlock_cli.standing import MISSING, Standing
from interlock_cli.texts import address_text


@click.command("list")
@click.argument("group")
@bootstrap_options
@json_option
def list_routes(group: str, address: str, timeout: float, as_json: bool) -> None:
    """Show the ranks of GROUP, a line each.

    A rank is live, undeclared (it still has to declare a value that another rank declared), or missing. `interlock
    group list` shows the groups, `interlock group show` one of them as a whole.

    \b
    Examples:
      interlock route list prefill-a
      interlock route list prefill-a --json
    """
    from interlock.reasons import Reason
    from interlock_cli.documents import document

    with bootstrap_at(address, timeout) as client:
        standing = Standing(snapshot_of(client, group, timeout))
    state = standing.state
    if state.revision == 0:
        raise CommandError(
            f"nobody has registered in group {state.group!r}", reason=Reason.UNKNOWN_GROUP, field="group"
        )
    if as_json:
        routes = [document(route) for _, route in sorted(standing.routes.items())]
        echo_json({"state": document(state), "routes": routes})
        return
    rows: list[tuple[object, ...]] = [(key, None, None, None, MISSING) for key in state.missing_keys]
    for key, route in standing.routes.items():
        address_of_rank = address_text(route.rank_ip, route.rank_port)
        rows.append((key, address_of_rank, route.incarnation, route.prefill_http_port, standing.word(key)))
    echo_table(["RANK", "ADDRESS", "INCARNATION", "HTTP PORT", "STATE"], sorted(rows))
    if more := state.missing_count - len(state.missing_keys):
        click.echo(f"... and {more} more {MISSING}")
