"""`interlock route register --keep`: holds a rank's lease until Ctrl-C."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from interlock_cli.errors import one_line

if TYPE_CHECKING:
    from interlock.client import Registered, Registration

DEFAULT_LEASE_TTL = 30.0
"""Seconds, where `--keep` is given no `--lease-ttl`."""

_LOOK_SECONDS = 0.5


def keep(registration: "Registration", tell: Callable[["Registered"], None]) -> None:
    """Keeps a rank registered until it is lost or the program is stopped; then deregisters it.

    How it stands is told on stderr whenever that changes.

    Args:
        registration: Not entered yet.
        tell: Shows what the server answered when the rank registered.

    Raises:
        InterlockError: It could not be registered, or was lost.
    """
    with registration:
        shown, state = registration.registered, registration.state
        if shown is not None:
            tell(shown)
        while registration.wait_lost(_LOOK_SECONDS) is None:
            if registration.state is not state:
                state = registration.state
                cause = "" if registration.error is None else f": {registration.error}"
                click.echo(one_line(f"interlock: {state}, revision {registration.revision}{cause}"), err=True)
