"""`interlock route watch`."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from interlock_cli.errors import printable
from interlock_cli.output import echo_json, json_option
from interlock_cli.services import bootstrap_at, bootstrap_options, snapshot_of
from interlock_cli.texts import address_text, state_word

if TYPE_CHECKING:
    from interlock.client import WatchChange, WatchSnapshot
    from interlock.topology import Event, Route


@click.command()
@click.argument("group")
@bootstrap_options
@json_option
def watch(group: str, address: str, timeout: float, as_json: bool) -> None:
    """Follow GROUP: its routes as they are, then every change, until Ctrl-C.

    Each line has the REVISION, what happened, and to which rank. A snapshot comes first, and again whenever changes
    were missed; it replaces what was shown before. With --json each revision is one line, with the group's state after
    it. --timeout bounds the wait for the service to answer at all.

    \b
    Examples:
      interlock route watch prefill-a
      interlock route watch prefill-a --json | jq .state.ready
    """
    from interlock.client import WatchProgress

    echo = _echo_json if as_json else _echo_lines
    with bootstrap_at(address, timeout) as client, suppress(KeyboardInterrupt):
        snapshot_of(client, group, timeout)  # the watch itself waits for its service without end
        for item in client.watch_topology(group):
            if not isinstance(item, WatchProgress):
                echo(item)


def _echo_json(item: "WatchSnapshot | WatchChange") -> None:
    from interlock.client import WatchChange
    from interlock_cli.documents import document, event_document

    if isinstance(item, WatchChange):
        what = {"events": [event_document(event) for event in item.events]}
    else:
        what = {"snapshot": [document(route) for _, route in sorted(item.routes.items())]}
    echo_json({**what, "state": document(item.state)}, line=True)


def _echo_lines(item: "WatchSnapshot | WatchChange") -> None:
    from interlock.client import WatchChange

    state = item.state
    progress = f"{state_word(state)}, {state.registered} of {state.expected} registered, epoch {state.epoch}"
    if isinstance(item, WatchChange):
        lines = [*(_event_texts(event) for event in item.events), ("state", progress)]
    else:
        lines = [("snapshot", progress), *(("live", _route_text(route)) for _, route in sorted(item.routes.items()))]
    for what, to_what in lines:
        click.echo(printable(f"{state.revision}  {what:<10}  {to_what}"))


def _event_texts(event: "Event") -> tuple[str, str]:
    """What an event is, and to what it happened."""
    from interlock.topology import EpochStarted, RouteRegistered

    if isinstance(event, EpochStarted):
        return "epoch", f"{event.epoch}  {event.instance or 'no instance yet'}"
    if isinstance(event, RouteRegistered):
        return "registered", _route_text(event.route)
    return "removed", str(event.key)


def _route_text(route: "Route") -> str:
    return f"{route.key}  {address_text(route.rank_ip, route.rank_port)}"
