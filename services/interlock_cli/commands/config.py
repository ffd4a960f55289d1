"""`interlock config`: settings, without serving."""

from pathlib import Path

import click

from interlock_cli.errors import ExitCode, ended, printable
from interlock_cli.extras import extra
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.settings import BOOTSTRAP, PREPROCESS, SettingsInForce, settings_in_force, settings_of

_SERVICES = {"bootstrap": [BOOTSTRAP], "preprocess": [PREPROCESS], "all": [BOOTSTRAP, PREPROCESS]}


@click.group(cls=CommandGroup)
def config() -> None:
    """Check settings before a server starts with them.

    \b
    Examples:
      interlock config check --config interlock.toml
    """


@config.command()
@click.argument("name", type=click.Choice(list(_SERVICES)), default="all")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="INTERLOCK_CONFIG",
    show_envvar=True,
    help="Settings file (TOML).",
)
@json_option
def check(name: str, file: Path | None, as_json: bool) -> None:
    """Check what `interlock serve NAME` would be set to by file and environment: bootstrap, preprocess or all.

    Certificates, keys and the credentials file are read too. Prints what differs from the defaults; or every fault on
    a line of its own, with exit code 2.

    \b
    Examples:
      interlock config check
      interlock config check bootstrap --config /etc/interlock/interlock.toml
    """
    from interlock.serving.config import SettingsError, declared_settings

    with extra(name):
        kinds = settings_of(_SERVICES[name])
    faults: list[str] = []
    try:
        in_force = settings_in_force(_SERVICES[name], file)
    except SettingsError as error:
        faults += error.faults
    else:
        faults += _faults_of_files(in_force)
    if faults:
        if as_json:
            echo_json({"faults": faults})
        else:
            click.echo("\n".join(map(printable, faults)))
        ended(ExitCode.USAGE)
    changed = [
        (f"[{declared.table}]", declared.name, getattr(in_force(kind), declared.name))
        for kind in kinds
        for declared in declared_settings(kind)
        if getattr(in_force(kind), declared.name) != declared.default
    ]
    if as_json:
        echo_json({"faults": [], "changed": [{"table": t[1:-1], "name": n, "value": str(v)} for t, n, v in changed]})
    else:
        echo_table(["TABLE", "SETTING", "VALUE"], changed)


def _faults_of_files(in_force: SettingsInForce) -> list[str]:
    """What is wrong with the files that the settings name, and with the whole."""
    from interlock.serving.access import AccessSettings
    from interlock.serving.credentials import CredentialsError
    from interlock.serving.server import OpenToAllError, Server, ServerSettings
    from interlock.serving.tls import BadCertificateError, TlsSettings

    faults = []
    for access, tls in (
        (AccessSettings(insecure=True), in_force(TlsSettings)),
        (in_force(AccessSettings), TlsSettings()),
    ):
        try:
            Server(in_force(ServerSettings), access, tls)
        except (BadCertificateError, CredentialsError, OpenToAllError) as error:
            faults.append(str(error))
    return faults
