"""`interlock group`: prefill servers as wholes."""

import sys

import click

from interlock_cli.commands.group_show import show
from interlock_cli.errors import CommandError
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.ranks import COUNT
from interlock_cli.services import bootstrap_at, bootstrap_options, snapshot_of
from interlock_cli.texts import state_word


@click.group(cls=CommandGroup)
def group() -> None:
    """Show groups: what they share, and what they lack.

    A group is one prefill server, spread over data-, context-, tensor- and pipeline-parallel ranks. `interlock route`
    is about its ranks one by one.

    \b
    Examples:
      interlock group list
      interlock group show prefill-a
      interlock group force-epoch prefill-a
    """


group.add_command(show)


@group.command("list")
@bootstrap_options
@json_option
def list_groups(address: str, timeout: float, as_json: bool) -> None:
    """Show all groups, a line each.

    A group is ready when each of its EXPECTED ranks has a route and all of them declared alike. Groups whose last route
    went stay: their revisions and their floor outlive the routes.

    \b
    Examples:
      interlock group list
      interlock group list --json | jq -r '.groups[] | select(.ready | not) | .group'
    """
    from interlock_cli.documents import document

    with bootstrap_at(address, timeout) as client:
        states = list(client.list_groups())
    if as_json:
        echo_json({"groups": document(states)})
        return
    rows = [
        (
            state.group,
            state_word(state),
            state.registered,
            state.expected,
            state.epoch,
            state.revision,
            state.instance and state.instance.id,
            state.instance and state.instance.started_at,
        )
        for state in states
    ]
    echo_table(["GROUP", "STATE", "REGISTERED", "EXPECTED", "EPOCH", "REVISION", "INSTANCE", "STARTED AT"], rows)


@group.command("force-epoch")
@click.argument("name", metavar="NAME")
@click.option("--floor-id", metavar="ID", help="Oldest launch accepted from now on; needs --floor-started-at.")
@click.option(
    "--floor-started-at",
    type=COUNT,
    metavar="NS",
    help="When that launch began, in Unix nanoseconds. Without the two: any launch is accepted.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_options
@json_option
def force_epoch(
    name: str,
    address: str,
    timeout: float,
    as_json: bool,
    floor_id: str | None,
    floor_started_at: int | None,
    yes: bool,
) -> None:
    """Drop all routes of group NAME and begin a new epoch: for admins.

    It mends what no rank can: a launcher whose clock was ahead set the floor so high that every later launch is refused
    (STALE_INSTANCE), or routes without a lease were left behind. Ranks that are alive register again by themselves if
    they keep a lease; others have to be started again. Decode servers see the group not ready until then.

    \b
    Examples:
      interlock group force-epoch prefill-a
      interlock group force-epoch prefill-a --yes --floor-id run-7 --floor-started-at 1785312000000000000
    """
    from interlock.reasons import Reason
    from interlock.topology import Instance
    from interlock_cli.documents import document

    floor: Instance | None = None
    if floor_id is not None and floor_started_at is not None:
        floor = Instance(floor_id, floor_started_at)
    elif floor_id is not None or floor_started_at is not None:
        raise click.UsageError("--floor-id and --floor-started-at go together")
    with bootstrap_at(address, timeout) as client:
        state = snapshot_of(client, name, timeout).state
        if state.revision == 0:
            raise CommandError(f"nobody has registered in group {name!r}", reason=Reason.UNKNOWN_GROUP, field="group")
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("this drops routes: say --yes where nobody can be asked")
            if not click.confirm(f"Drop {state.registered} routes of group {name}?", err=True):
                raise CommandError("nothing was changed")
        forced = client.force_epoch(group=name, floor=floor)
    if as_json:
        echo_json({"group": name, **document(forced)})
    else:
        row = (name, forced.epoch, forced.revision, forced.dropped_routes)
        echo_table(["GROUP", "EPOCH", "REVISION", "DROPPED ROUTES"], [row])
