"""What a command proves itself with to a service: options of the program itself, the same for every command."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from interlock.client import Credentials

_F = TypeVar("_F", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path)


def connection_options(program: _F) -> _F:
    """Gives the program its options for TLS and token. Their values are kept in the root context's `obj`."""
    for option in reversed(
        (
            click.option(
                "--tls",
                is_flag=True,
                envvar="INTERLOCK_TLS",
                show_envvar=True,
                help="Speak TLS to a service, and trust the CAs of this machine.",
            ),
            click.option(
                "--ca-file",
                type=_FILE,
                metavar="FILE",
                envvar="INTERLOCK_CA_FILE",
                show_envvar=True,
                help="Speak TLS, and trust these CAs (PEM).",
            ),
            click.option(
                "--certificate-file",
                type=_FILE,
                metavar="FILE",
                envvar="INTERLOCK_CERTIFICATE_FILE",
                show_envvar=True,
                help="Certificate to show to a service that asks for one (PEM).",
            ),
            click.option(
                "--key-file",
                type=_FILE,
                metavar="FILE",
                envvar="INTERLOCK_KEY_FILE",
                show_envvar=True,
                help="Its private key (PEM).",
            ),
            click.option(
                "--token-file",
                type=_FILE,
                metavar="FILE",
                envvar="INTERLOCK_TOKEN_FILE",
                show_envvar=True,
                help="File with the bearer token. Without it INTERLOCK_TOKEN may hold the token itself.",
            ),
        )
    ):
        program = option(program)
    return program


def connection_credentials() -> "Credentials":
    """Those that the running command was given.

    Raises:
        CredentialsError: They cannot be used.
    """
    import os

    from interlock.client import Credentials

    given = dict(click.get_current_context().find_root().params)
    options = {name: given.get(name) for name in ("tls", "ca_file", "certificate_file", "key_file", "token_file")}
    token = None if options["token_file"] else os.environ.get("INTERLOCK_TOKEN") or None
    return Credentials(**{name: value for name, value in options.items() if value}, token=token)
