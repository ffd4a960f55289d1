"""`interlock topology`: what a store keeps, as a file and back."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock_cli.errors import CommandError, ExitCode, os_error_text, printable
from interlock_cli.extras import extra
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json
from interlock_cli.settings import BOOTSTRAP, SettingsInForce, settings_in_force

if TYPE_CHECKING:
    from interlock_bootstrap.stores import Store

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def topology() -> None:
    """Keep a copy of what a store keeps, and move it to another.

    Works on the store itself: of a SQLite store stop the server first; servers over etcd may run on.

    \b
    Examples:
      interlock topology export --state-folder /var/lib/interlock -o topology.json
      interlock topology import topology.json --store etcd --etcd-endpoints 10.0.0.1:2379
    """


def _store_options(command: _F) -> _F:
    for option in reversed(
        (
            click.option(
                "--store",
                "bootstrap_store",
                type=click.Choice(["sqlite", "etcd"]),
                help="Which store.  [default: sqlite]",
            ),
            click.option("--state-folder", "sqlite_state_folder", metavar="PATH", help="Folder of the SQLite store."),
            click.option(
                "--etcd-endpoints",
                "etcd_endpoints",
                metavar="ENDPOINTS",
                help="etcd's members, with commas between them.",
            ),
            click.option(
                "--config",
                type=click.Path(path_type=Path),
                metavar="FILE",
                envvar="INTERLOCK_CONFIG",
                show_envvar=True,
                help="Settings file (TOML) of the server whose store it is, for what else it says of the store.",
            ),
        )
    ):
        command = option(command)
    return command


@topology.command("export")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to. [default: stdout]",
)
@_store_options
def export(output: Path | None, config: Path | None, **flags: str | None) -> None:
    """Write all groups of a store as JSON: routes, leases, revisions, epochs, floors.

    \b
    Examples:
      interlock topology export --state-folder /var/lib/interlock -o topology.json
      interlock topology export --store etcd --etcd-endpoints 10.0.0.1:2379
    """
    with extra("bootstrap"):
        from interlock_bootstrap.dumps import dump

    document = _with_store(config, flags, dump)
    if output is None:
        echo_json(document)
        return
    try:
        output.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise CommandError(f"{printable(str(output))}: {os_error_text(error)}") from None
    click.echo(f"{len(document['groups'])} groups are in {printable(str(output))}", err=True)


@topology.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@_store_options
def import_(file: Path, config: Path | None, **flags: str | None) -> None:
    """Bring a store to what FILE says; `-` reads stdin.

    Groups that FILE does not have stay. Revisions and epochs are kept, so that clients go on where they were; where a
    revision would go back, everything is refused and nothing changed. Leases have their full time again.

    \b
    Examples:
      interlock topology import topology.json --state-folder /var/lib/interlock
      interlock topology import topology.json --store etcd --etcd-endpoints 10.0.0.1:2379
    """
    with extra("bootstrap"):
        from interlock_bootstrap.dumps import DumpError, restore

    name = printable(str(file))
    try:
        document = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except OSError as error:
        raise CommandError(f"{name}: {os_error_text(error)}") from None
    except ValueError as error:
        raise CommandError(f"{name}: no JSON: {error}") from None
    try:
        imported = _with_store(config, flags, lambda store: restore(store, document))
    except DumpError as error:
        raise CommandError(f"{name}: {error}") from None
    click.echo(f"{imported.written} groups were written, {imported.equal} were so already")


def _with_store(config: Path | None, flags: dict[str, str | None], use: "Callable[[Store], Awaitable[_T]]") -> _T:
    """Opens the store that the settings name, and gives what `use` makes of it."""
    from interlock.serving.config import SettingsError
    from interlock_bootstrap.stores import CannotOpenStoreError, StoreUnreachableError

    try:
        return asyncio.run(_used(settings_in_force([BOOTSTRAP], config, flags), use))
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    except StoreUnreachableError as error:
        raise CommandError(str(error), exit_code=ExitCode.UNREACHABLE) from None
    except CannotOpenStoreError as error:
        raise CommandError(str(error), exit_code=ExitCode.UNUSABLE_STORE) from None


async def _used(in_force: SettingsInForce, use: "Callable[[Store], Awaitable[_T]]") -> _T:
    import os

    from interlock_bootstrap.serve import choose_store
    from interlock_bootstrap.settings import BootstrapSettings
    from interlock_bootstrap.stores import Unheard
    from interlock_bootstrap.stores.etcd.settings import EtcdSettings
    from interlock_bootstrap.stores.sqlite import SqliteSettings

    store, _ = choose_store(in_force(BootstrapSettings), in_force(SqliteSettings), in_force(EtcdSettings), os.environ)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        await store.start(Unheard())
        return await use(store)
