"""`interlock token`: bearer tokens for services with a credentials file."""

import re
import secrets
import sys
from datetime import UTC, datetime, timedelta

import click

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
      interlock token new --id team-a --role register --group 'team-a-*' >> credentials.toml
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
@json_option
def new(name: str, roles: tuple[str, ...], groups: tuple[str, ...], days: int | None, as_json: bool) -> None:
    """Make a token.

    The token goes to stderr, to be handed to whoever is to have it: it is kept nowhere. The entry for the credentials
    file goes to stdout; it has only the token's hash. A server reads its file again within a second or two.

    \b
    Examples:
      interlock token new --id team-a --role register --group 'team-a-*' >> credentials.toml
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
    entry = {"id": name, "sha256": token_sha256(secret), "roles": list(dict.fromkeys(roles))}
    if as_json:
        optional = {"groups": list(groups) or None, "expires": expires and expires.isoformat().replace("+00:00", "Z")}
        echo_json({"token": secret, **entry, **{key: value for key, value in optional.items() if value}})
        return
    lines = ["", "[[token]]", f'id = "{name}"', f'sha256 = "{entry["sha256"]}"', f"roles = {_strings(entry['roles'])}"]
    if groups:
        lines.append(f"groups = {_strings(groups)}")
    if expires is not None:
        lines.append(f"expires = {expires:%Y-%m-%dT%H:%M:%SZ}")
    click.echo("\n".join(lines))
    sys.stdout.flush()
    click.echo(f"token of {name}, not kept anywhere: {secret}", err=True)


def _strings(values: object) -> str:
    assert isinstance(values, list | tuple)
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
