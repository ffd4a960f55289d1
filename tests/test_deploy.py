"""What deploy/ offers to copy fits the program: settings and defaults, commands of the units."""

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from interlock.serving.access import AccessSettings
from interlock.serving.config import declared_settings, load_settings_file
from interlock.serving.logs import LogSettings
from interlock.serving.metrics import MetricsSettings
from interlock.serving.server import ServerSettings
from interlock.serving.tls import TlsSettings
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.sqlite import SqliteSettings
from interlock_cli import main
from interlock_cli.errors import ExitCode
from interlock_preprocess.settings import PreprocessSettings

DEPLOY = Path(__file__).parent.parent / "deploy"
SETTINGS = [
    ServerSettings,
    AccessSettings,
    TlsSettings,
    MetricsSettings,
    LogSettings,
    BootstrapSettings,
    SqliteSettings,
    EtcdSettings,
    PreprocessSettings,
]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

MACHINE_DEPENDENT = {"worker_threads"}


def test_the_settings_file_names_every_setting_in_its_table_with_its_default():
    text = (DEPLOY / "interlock.toml").read_text().replace("= ...", '= "..."')
    shown = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    expected = {
        kind.table: {
            declared.name: "..." if declared.default is None or declared.name in MACHINE_DEPENDENT else declared.default
            for declared in declared_settings(kind)
        }
        for kind in SETTINGS
    }
    assert shown == expected


def test_the_settings_file_is_read_as_it_stands():
    assert load_settings_file(DEPLOY / "interlock.toml", SETTINGS) == {kind.table: {} for kind in SETTINGS}


def unit(path):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_a_unit_starts_a_command_that_exists_with_flags_that_exist(path):
    program, *words = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program.endswith("/interlock")
    command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    context = command.make_context(path.name, words)
    assert "0.0.0.0" in context.params.values()


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_a_unit_leaves_the_server_its_grace_and_does_not_restart_what_needs_a_person(path):
    service = unit(path)["Service"]
    assert int(service["TimeoutStopSec"]) > ServerSettings().grace_seconds
    needs_a_person = {int(code) for code in service["RestartPreventExitStatus"].split()}
    expected = {ExitCode.USAGE} if "preprocess" in path.name else {ExitCode.USAGE, ExitCode.UNUSABLE_STORE}
    assert needs_a_person == expected
