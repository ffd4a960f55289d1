"""`interlock token`: bearer tokens for services with a credentials file."""

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from interlock_cli.errors import CommandError, os_error_text, printable
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, json_option

_ROLES = ("read", "register", "admin", "preprocess")
_SECRET_BYTES = 32
_PREFIX = "interlock_"
"""So that a scanner for leaked secrets finds one."""


@click.group(cls=CommandGroup)
def token() -> None:
    """Make tokens for services that know who may do what.

    \b
    Examples:
      interlock token new --id team-a --role register --group 'team-a-*' --file credentials.toml
    """


@token.command()
@click.option("--id", "name", required=True, metavar="NAME", help="What logs call whoever has the token.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(_ROLES),
    multiple=True,
    required=True,
    help="What it is good for: read (see and watch), register (also write), preprocess (pictures), admin (everything). "
    "May be given several times.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    help="Groups that it is good for; * and ? stand for others. Without it: every group.",
)
@click.option(
    "--days",
    type=click.IntRange(min=1, max=36_500),
    metavar="DAYS",
    help="Days after which it expires. [default: never]",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Credentials file to add the entry to.",
)
@json_option
def new(
    name: str, roles: tuple[str, ...], groups: tuple[str, ...], days: int | None, file: Path | None, as_json: bool
) -> None:
    """Make a token.

    The token goes to stdout, to be handed to whoever is to have it: it is kept nowhere. The entry for the credentials
    file, which has only the token's hash, is added to --file, or else shown on stderr. Servers read their file again
    within a second or two.

    \b
    Examples:
      interlock token new --id team-a --role register --group 'team-a-*' --file credentials.toml
      interlock token new --id router --role read --days 90 --json
    """
    from interlock.serving.credentials import token_sha256

    if not re.fullmatch(r"[!-~][ -~]{0,511}", name) or '"' in name or "\\" in name:
        raise click.BadParameter("printable ASCII without quotes and backslashes", param_hint="--id")
    for group in groups:
        if not re.fullmatch(r"[a-z0-9*?-]{1,63}", group):
            raise click.BadParameter(f"{group!r} is no name of a group with * and ? in it", param_hint="--group")
    secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    lines = ["[[token]]", f'id = "{name}"', f'sha256 = "{token_sha256(secret)}"', f"roles = {_strings(roles)}"]
    if groups:
        lines.append(f"groups = {_strings(groups)}")
    if expires is not None:
        lines.append(f"expires = {expires:%Y-%m-%dT%H:%M:%SZ}")
    entry = "\n".join(lines) + "\n\n"
    if file is not None:
        _append(file, entry)
    elif not as_json:
        click.echo(entry, err=True, nl=False)
    if as_json:
        echo_json({"token": secret, "entry": entry})
    else:
        click.echo(secret)


def _append(file: Path, entry: str) -> None:
    try:
        with file.open("a") as opened:
            opened.write(entry)
    except OSError as error:
        raise CommandError(f"{printable(str(file))}: {os_error_text(error)}") from None


def _strings(values: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in dict.fromkeys(values)) + "]"
