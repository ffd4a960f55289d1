"""`interlock route list`."""

from typing import TYPE_CHECKING

import click

from interlock_cli.errors import CommandError
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.services import bootstrap_at, bootstrap_options, snapshot_of
from interlock_cli.texts import address_text, state_word

if TYPE_CHECKING:
    from interlock.topology import GroupState, RankKey


@click.command("list")
@click.argument("group", required=False)
@bootstrap_options
@json_option
def list_routes(group: str | None, address: str, timeout: float, as_json: bool) -> None:
    """Show all groups, or the ranks of GROUP.

    A group is ready when each of its EXPECTED ranks has a route and all of them declared alike. Of one group each rank
    is a row: live, undeclared (it still has to declare a value that another rank declared), or missing.

    \b
    Examples:
      interlock route list
      interlock route list prefill-a
      interlock route list prefill-a --json
    """
    from interlock.reasons import Reason
    from interlock_cli.documents import document

    with bootstrap_at(address, timeout) as client:
        if group is None:
            groups = list(client.list_groups())
            if as_json:
                echo_json({"groups": document(groups)})
            else:
                echo_table(_GROUP_COLUMNS, [_group_row(state) for state in groups])
            return
        snapshot = snapshot_of(client, group, timeout)
    state = snapshot.state
    if state.revision == 0:
        raise CommandError(
            f"nobody has registered in group {state.group!r}", reason=Reason.UNKNOWN_GROUP, field="group"
        )
    routes = [route for _, route in sorted(snapshot.routes.items())]
    if as_json:
        echo_json({"state": document(state), "routes": document(routes)})
        return
    echo_table(_GROUP_COLUMNS, [_group_row(state)])
    undeclared = set(state.undeclared_keys)
    ranks: dict[RankKey, tuple[object, ...]] = dict.fromkeys(state.missing_keys, (None, None, None, "missing"))
    for route in routes:
        word = "undeclared" if route.key in undeclared else "live"
        address_of_rank = address_text(route.rank_ip, route.rank_port)
        ranks[route.key] = (address_of_rank, route.incarnation, route.prefill_http_port, word)
    click.echo()
    echo_table(["RANK", "ADDRESS", "INCARNATION", "HTTP PORT", "STATE"], [(key, *ranks[key]) for key in sorted(ranks)])
    for word, keys, count in (
        ("missing", state.missing_keys, state.missing_count),
        ("undeclared", state.undeclared_keys, state.undeclared_count),
    ):
        if count > len(keys):
            click.echo(f"... and {count - len(keys)} more {word}")


_GROUP_COLUMNS = ["GROUP", "STATE", "REGISTERED", "EXPECTED", "EPOCH", "REVISION", "INSTANCE", "STARTED AT"]


def _group_row(state: "GroupState") -> tuple[object, ...]:
    instance = state.instance
    return (
        state.group,
        state_word(state),
        state.registered,
        state.expected,
        state.epoch,
        state.revision,
        None if instance is None else instance.id,
        None if instance is None else instance.started_at,
    )
