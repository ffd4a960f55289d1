"""`interlock route watch`."""

import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

import click

from interlock_cli.errors import one_line, printable
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

    On a terminal it is a table that changes in place, with what is missing above it. Elsewhere each line has the
    REVISION, what happened, and to which rank; a snapshot comes first, and again whenever changes were missed: it
    replaces what was shown before. With --json each revision is one line, with the group's state after it.

    When the service goes away it says so (on stderr, where there is no table), looks for it, and goes on where it
    stopped. --timeout bounds only the wait for the first answer.

    \b
    Examples:
      interlock route watch prefill-a
      interlock route watch prefill-a | cat
      interlock route watch prefill-a --json | jq .state.ready
    """
    from interlock.client import WatchProgress

    with bootstrap_at(address, timeout) as client, suppress(KeyboardInterrupt):
        snapshot_of(client, group, timeout)  # the watch itself waits for its service without end
        with _view(address, as_json) as view:
            for item in client.watch_topology(group, on_lost=view.lost):
                view.take(None if isinstance(item, WatchProgress) else item)


class _View(Protocol):
    """Where a watch is shown."""

    def take(self, item: "WatchSnapshot | WatchChange | None") -> None:
        """Shows what came. None: nothing new, from a service that is there."""

    def lost(self, error: Exception) -> None:
        """Shows that the service is away."""


def _view(address: str, as_json: bool) -> "AbstractContextManager[_View]":
    if not as_json and sys.stdout.isatty():
        from rich.console import Console

        if not Console().is_dumb_terminal:
            from interlock_cli.watch_screen import WatchScreen

            return WatchScreen(address)
    return nullcontext(_Lines(address, as_json))


class _Lines:
    """A line for each thing that happens, or one JSON line for each revision."""

    def __init__(self, address: str, as_json: bool) -> None:
        self._address = address
        self._echo = _echo_json if as_json else _echo_lines
        self._away = False

    def take(self, item: "WatchSnapshot | WatchChange | None") -> None:
        if self._away:
            self._away = False
            click.echo(f"interlock: {self._address} is back", err=True)
        if item is not None:
            self._echo(item)

    def lost(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            click.echo(one_line(f"interlock: {self._address} is away and looked for: {error}"), err=True)


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
