"""`interlock certs`: certificates to try TLS with."""

from datetime import timedelta
from pathlib import Path

import click

from interlock_cli.extras import extra
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, json_option


@click.group(cls=CommandGroup)
def certs() -> None:
    """Make certificates to try TLS and mTLS with.

    \b
    Examples:
      interlock certs dev ./certs
    """


@certs.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--server-name",
    "server_names",
    multiple=True,
    default=("localhost", "127.0.0.1", "::1"),
    show_default=True,
    metavar="NAME",
    help="Host name or IP address that clients call the server by. May be given several times.",
)
@click.option(
    "--client-name",
    default="spiffe://interlock.test/client",
    show_default=True,
    metavar="NAME",
    help="Name in the client's certificate, which a credentials file can give a role.",
)
@click.option("--days", type=click.IntRange(min=1, max=3650), default=7, show_default=True, help="Days they are valid.")
@json_option
def dev(folder: Path, server_names: tuple[str, ...], client_name: str, days: int, as_json: bool) -> None:
    """Write a throw-away set into FOLDER: a CA, a server's certificate, a client's.

    The CA's key is not kept. Run it again for a new set: servers read the new files with the next connection. For
    anything that matters use your own CA, such as cert-manager's.

    \b
    Examples:
      interlock certs dev ./certs
      interlock certs dev ./certs --server-name bootstrap.test --days 1
    """
    with extra("bootstrap"):
        from interlock_cli.dev_certificates import write_dev_certificates

    files = write_dev_certificates(folder, server_names, client_name, timedelta(days=days))
    if as_json:
        echo_json({name: str(file) for name, file in files._asdict().items()})
        return
    for name, file in files._asdict().items():
        click.echo(f"{name.replace('_', ' '):<20}{file}")
