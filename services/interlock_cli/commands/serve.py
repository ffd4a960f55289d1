"""`interlock serve`: its options are the settings that the services declare."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock_cli.errors import CommandError, ExitCode, printable
from interlock_cli.extras import extra
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json
from interlock_cli.settings import (
    BOOTSTRAP,
    PREPROCESS,
    SettingsInForce,
    parameter_name,
    settings_in_force,
    settings_of,
)
from interlock_cli.texts import address_text

if TYPE_CHECKING:
    from interlock.serving.config import Setting, Settings

_STORES = [
    (
        "sqlite",
        "One server with a file of its own: bootstrap.db in --state-folder. What it acknowledged survives kill -9 and "
        "a loss of power. A second server on the same folder is refused. For where the seconds of a restart do no "
        "harm: ranks and decode servers go on with what they know.",
    ),
    (
        "etcd",
        "Any number of servers that are one truth, kept by an etcd cluster: --etcd-endpoints. What any of them "
        "acknowledged survives as etcd does, and each answers for all. One that loses etcd says so within "
        "--etcd-staleness-bound-seconds rather than show what may be old. For where no single machine may matter.",
    ),
    ("memory", "Nothing is kept: after a restart all ranks have to register again. For tests and trials."),
]
"""What `--store` may be, for people. `docs/durability.md` has the whole of it."""


class ServeCommand(click.Command):
    """Serves some of the services. Its options are made, and their modules imported, only when they are asked for.

    Args:
        name: Of the command, and of the extra that brings its packages.
        services: What it serves.
        about: First sentence of its help.
    """

    def __init__(self, name: str, services: Sequence[str], about: str) -> None:
        explanation = f"{_EXPLANATION} {_STORE_EXIT_CODES}" if BOOTSTRAP in services else _EXPLANATION
        super().__init__(
            name, callback=self._serve, help=f"{about}\n\n{explanation}\n\n\b\n{_examples(name, services)}"
        )
        self._extra = name
        self._services = services
        self._options: list[click.Parameter] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if self._options is None:
            with extra(self._extra):
                kinds = settings_of(self._services)
            self._options = [
                *_COMMON_OPTIONS,
                *(_SettingOption(setting) for kind in kinds for setting in _declared(kind)),
            ]
        return [*self._options, *super().get_params(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The stores, and the options under the tables of the settings file that they belong to."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            if record := option.get_help_record(ctx):
                table = option.table if isinstance(option, _SettingOption) else ""
                sections.setdefault(f"Options [{table}]" if table else "Options", []).append(record)
        if BOOTSTRAP in self._services:
            with formatter.section("Stores (--store)"):
                formatter.write_dl(_STORES)
        for title in sorted(sections, key="Options".__ne__):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def _serve(self, config: Path | None, as_json: bool, **flags: Any) -> None:
        from interlock.serving.config import SettingsError
        from interlock.serving.credentials import CredentialsError
        from interlock.serving.logs import LogSettings, configure
        from interlock.serving.server import CannotListenError, OpenToAllError
        from interlock.serving.tls import BadCertificateError
        from interlock_bootstrap.stores import CannotOpenStoreError, StoreUnreachableError

        def announce(address: str, store: dict[str, str]) -> None:
            with contextlib.suppress(OSError):  # nobody reads it: no reason not to serve
                if as_json:
                    echo_json({"serving": list(self._services), "address": address, **store}, line=True)
                else:
                    groups = f"; groups are kept in {printable(store['kept_in'])}" if store else ""
                    click.echo(f"interlock: serving {' and '.join(self._services)} on {address}{groups}")

        try:
            resolved = settings_in_force(self._services, config, flags)
            configure(resolved(LogSettings))
            asyncio.run(self._run(resolved, announce))
        except (SettingsError, OpenToAllError, CredentialsError, BadCertificateError) as error:
            raise click.UsageError(str(error)) from None
        except CannotListenError as error:
            raise CommandError(str(error)) from None
        except StoreUnreachableError as error:
            raise CommandError(str(error), exit_code=ExitCode.UNREACHABLE) from None
        except CannotOpenStoreError as error:
            raise CommandError(str(error), exit_code=ExitCode.UNUSABLE_STORE) from None

    async def _run(self, resolved: "SettingsInForce", announce: Callable[[str, dict[str, str]], None]) -> None:
        """Serves until the process is told to stop."""
        from interlock.serving.access import AccessSettings
        from interlock.serving.metrics import MetricsSettings
        from interlock.serving.server import Server, ServerSettings, run_until_stopped
        from interlock.serving.tls import TlsSettings

        settings = resolved(ServerSettings)
        server = Server(settings, resolved(AccessSettings), resolved(TlsSettings), resolved(MetricsSettings))
        kept: dict[str, str] = {}
        async with contextlib.AsyncExitStack() as stack:
            with extra(self._extra):
                if BOOTSTRAP in self._services:
                    from interlock_bootstrap.serve import add_bootstrap, choose_store
                    from interlock_bootstrap.settings import BootstrapSettings
                    from interlock_bootstrap.stores.etcd.settings import EtcdSettings
                    from interlock_bootstrap.stores.sqlite import SqliteSettings

                    bootstrap = resolved(BootstrapSettings)
                    store, place = choose_store(bootstrap, resolved(SqliteSettings), resolved(EtcdSettings), os.environ)
                    kept = {"store": bootstrap.store, "kept_in": place}
                    add_bootstrap(server, bootstrap, store)
                if PREPROCESS in self._services:
                    from interlock_preprocess.serve import add_preprocess
                    from interlock_preprocess.settings import PreprocessSettings

                    stack.push_async_callback(add_preprocess(server, resolved(PreprocessSettings)).close)
            port = await server.start()
            # Runs when `run_until_stopped` waits: whoever reads the line may send a signal at once.
            asyncio.get_running_loop().call_soon(announce, address_text(settings.host, port), kept)
            await run_until_stopped(server)


def _declared(kind: "type[Settings]") -> "tuple[Setting, ...]":
    from interlock.serving.config import declared_settings

    return declared_settings(kind)


class _SettingOption(click.Option):
    """The flag of one setting. Values are handed on as texts, for the settings to read."""

    def __init__(self, setting: "Setting") -> None:
        default = "not set" if setting.default is None else str(setting.default).lower()
        help = f"{setting.help}  [default: {default}; env: {setting.variable}]"
        names = [setting.flag, parameter_name(setting)]
        if setting.type is bool:
            super().__init__(names, flag_value="true", default=None, help=help)
        else:
            kind = click.Choice(setting.choices) if setting.choices else str
            super().__init__(
                names, type=kind, metavar=None if setting.choices else setting.type.__name__.upper(), help=help
            )
        self.table = setting.table


_COMMON_OPTIONS = [
    click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="INTERLOCK_CONFIG",
        help="Settings file (TOML), with the tables named below.  [env: INTERLOCK_CONFIG]",
    ),
    click.Option(
        ["--json", "as_json"], is_flag=True, help="Say where it listens, and where groups are kept, as one JSON line."
    ),
]

_EXPLANATION = """When it is ready it says on stdout where it listens, and where groups are kept; logs go to stderr.
SIGTERM or Ctrl-C stops it: running calls have the grace period to end, and the exit code is 0. A flag goes before its
environment variable, that before the settings file."""

_STORE_EXIT_CODES = """A store that cannot be opened (its file is in use, damaged, of a newer version) ends it with exit
code 4, an etcd that does not answer with 3."""


def _examples(name: str, services: Sequence[str]) -> str:
    lines = [
        f"interlock serve {name}",
        f"interlock serve {name} --host 0.0.0.0 --port 50051 --log-format json",
        f"INTERLOCK_SERVER_PORT=0 interlock serve {name} --json",
    ]
    if BOOTSTRAP in services:
        lines[1:1] = [
            f"interlock serve {name} --state-folder /var/lib/interlock",
            f"interlock serve {name} --store etcd --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379",
        ]
    return "\n  ".join(["Examples:", *lines])


@click.group(cls=CommandGroup)
def serve() -> None:
    """Run the services.

    Each runs until SIGTERM or Ctrl-C.

    \b
    Examples:
      interlock serve all
      interlock serve bootstrap --state-folder /var/lib/interlock
      interlock serve preprocess --port 50052 --log-format json
    """


serve.add_command(
    ServeCommand(
        "bootstrap",
        [BOOTSTRAP],
        "Serve Bootstrap: prefill ranks register their routes, decode servers and routers learn the topology.",
    )
)
serve.add_command(
    ServeCommand("preprocess", [PREPROCESS], "Serve Preprocess: pictures in, bf16 patches of a vision tower out.")
)
serve.add_command(ServeCommand("all", [BOOTSTRAP, PREPROCESS], "Serve Bootstrap and Preprocess, both on one port."))
