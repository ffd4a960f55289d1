"""The settings of services, as commands see them: which there are, and which are in force."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from interlock.serving.config import Setting, Settings, SettingsFile

_S = TypeVar("_S", bound="Settings")

BOOTSTRAP, PREPROCESS = "bootstrap", "preprocess"

_COMMON_TABLES = ("server", "access", "tls", "metrics", "logs")
_TABLES = {BOOTSTRAP: (BOOTSTRAP, "sqlite", "etcd"), PREPROCESS: (PREPROCESS,)}
"""The tables of settings that each service has."""


class SettingsInForce(Protocol):
    """Gives the settings in force of one class."""

    def __call__(self, kind: "type[_S]") -> "_S": ...


def all_settings() -> "list[type[Settings]]":
    """All that a settings file may set, in the order of the example in deploy/."""
    from interlock.serving.access import AccessSettings
    from interlock.serving.logs import LogSettings
    from interlock.serving.metrics import MetricsSettings
    from interlock.serving.server import ServerSettings
    from interlock.serving.tls import TlsSettings
    from interlock_bootstrap.settings import BootstrapSettings
    from interlock_bootstrap.stores.etcd.settings import EtcdSettings
    from interlock_bootstrap.stores.sqlite import SqliteSettings
    from interlock_preprocess.settings import PreprocessSettings

    return [
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


def settings_of(services: Sequence[str]) -> "list[type[Settings]]":
    """Those that a server of these services has."""
    tables = {*_COMMON_TABLES, *(table for service in services for table in _TABLES[service])}
    return [kind for kind in all_settings() if kind.table in tables]


def parameter_name(setting: "Setting") -> str:
    """What click calls the flag of a setting."""
    return f"{setting.table}_{setting.name}"


def settings_in_force(
    services: Sequence[str], config: Path | None, flags: Mapping[str, Any] | None = None
) -> SettingsInForce:
    """What a server of these services is set to, by flags, environment and file.

    Args:
        services: what it serves.
        config: the settings file, if there is one.
        flags: by their parameters' names.

    Raises:
        SettingsError: with everything that is wrong, of whatever table.
    """
    from interlock.serving.config import Faults, declared_settings, load_settings_file, resolve

    faults = Faults()
    file: SettingsFile = {}
    resolved: dict[type[Settings], Settings] = {}
    if config is not None:
        with faults.gathered():
            file = load_settings_file(config, all_settings())
    for kind in settings_of(services):
        given = {setting.name: (flags or {}).get(parameter_name(setting)) for setting in declared_settings(kind)}
        with faults.gathered():
            resolved[kind] = resolve(kind, flags=given, environment=os.environ, file=file)
    faults.raise_if_any()
    return lambda kind: resolved[kind]  # type: ignore[return-value]
