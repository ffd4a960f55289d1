"""Settings: declared once, taken from flag, environment, file or default, refused with the place they came from."""

from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from interlock.serving import ServerSettings
from interlock.serving.config import Settings, SettingsError, declared_settings, load_settings_file, resolve, setting
from interlock.serving.logs import LogSettings


def _check_even(value):
    if value % 2:
        raise ValueError(f"expected an even number, got {value}")


@dataclass(frozen=True)
class DepotSettings(Settings):
    table: ClassVar[str] = "depot"

    max_groups: int = setting(10_000, "Groups kept at once.", minimum=1)
    tracks: int = setting(2, "Tracks.", validate=_check_even)
    share: float = setting(0.5, "Share.", minimum=0, maximum=1)
    strict: bool = setting(False, "Be strict.")
    mode: str = setting("fast", "How.", choices=("fast", "exact"))
    name: str | None = setting(None, "Name.")
    folder: Path | None = setting(None, "Folder.")


def resolved(*, flags=None, environment=None, file=None):
    return resolve(DepotSettings, flags=flags or {}, environment=environment or {}, file={"depot": file or {}})


def written(tmp_path, text):
    path = tmp_path / "interlock.toml"
    path.write_text(text)
    return path


def load(path):
    return load_settings_file(path, [DepotSettings, ServerSettings])


def message_of(call, *arguments, **keywords):
    with pytest.raises(SettingsError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_anything_the_defaults_stand():
    assert resolved() == DepotSettings(10_000, 2, 0.5, False, "fast", None, None)


def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default():
    flags, environment, file = {"max_groups": "3"}, {"INTERLOCK_DEPOT_MAX_GROUPS": "2"}, {"max_groups": 1}
    assert resolved(file=file).max_groups == 1
    assert resolved(file=file, environment=environment).max_groups == 2
    assert resolved(file=file, environment=environment, flags=flags).max_groups == 3
    assert resolved(file=file, environment=environment, flags={"max_groups": None}).max_groups == 2


def test_a_declaration_gives_flag_variable_default_and_what_is_expected():
    (max_groups, *_, mode, _, _) = declared_settings(DepotSettings)
    assert (max_groups.flag, max_groups.variable) == ("--max-groups", "INTERLOCK_DEPOT_MAX_GROUPS")
    assert (max_groups.type, max_groups.default, max_groups.optional) == (int, 10_000, False)
    assert (max_groups.help, max_groups.expected) == ("Groups kept at once.", "an integer, at least 1")
    assert (mode.choices, mode.expected) == (("fast", "exact"), "one of fast, exact")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_groups", "12", 12),
        ("share", "1", 1.0),
        ("share", "0.25", 0.25),
        ("strict", "true", True),
        ("strict", "OFF", False),
        ("strict", "1", True),
        ("mode", "exact", "exact"),
        ("name", "north", "north"),
        ("folder", "/dev/shm", Path("/dev/shm")),
    ],
)
def test_a_text_of_flag_or_environment_means_a_value(name, text, value):
    for instance in (resolved(flags={name: text}), resolved(environment={f"INTERLOCK_DEPOT_{name.upper()}": text})):
        assert getattr(instance, name) == value
        assert type(getattr(instance, name)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("max_groups", "0", "expected an integer, at least 1, got 0"),
        ("max_groups", "many", "expected an integer, at least 1, got 'many'"),
        ("max_groups", "1.5", "expected an integer, at least 1, got '1.5'"),
        ("share", "1.01", "expected a number from 0 to 1, got 1.01"),
        ("share", "nan", "expected a number from 0 to 1, got nan"),
        ("strict", "maybe", "expected true or false, got 'maybe'"),
        ("mode", "Fast", "expected one of fast, exact, got 'Fast'"),
        ("tracks", "3", "expected an even number, got 3"),
    ],
)
def test_a_wrong_text_is_refused_with_flag_or_variable_and_what_was_expected(name, text, expected):
    flag, variable = "--" + name.replace("_", "-"), f"INTERLOCK_DEPOT_{name.upper()}"
    assert message_of(resolved, flags={name: text}) == f"{flag}: {expected}"
    assert message_of(resolved, environment={variable: text}) == f"{variable}: {expected}"


def test_a_flag_may_come_in_its_type():
    assert resolved(flags={"max_groups": 4, "strict": True}) == DepotSettings(max_groups=4, strict=True)
    assert message_of(resolved, flags={"max_groups": 0}) == "--max-groups: expected an integer, at least 1, got 0"


def test_an_empty_variable_counts_as_not_set():
    assert resolved(environment={"INTERLOCK_DEPOT_MAX_GROUPS": ""}, file={"max_groups": 7}).max_groups == 7


def test_variables_that_kubernetes_makes_of_a_service_of_our_name_do_no_harm():
    environment = {
        "INTERLOCK_DEPOT_PORT": "tcp://10.0.0.7:50051",
        "INTERLOCK_DEPOT_SERVICE_HOST": "10.0.0.7",
        "INTERLOCK_DEPOT_PORT_50051_TCP_ADDR": "10.0.0.7",
    }
    assert resolved(environment=environment) == DepotSettings()


def test_a_file_is_read(tmp_path):
    path = written(tmp_path, '[depot]\nmax_groups = 5\nshare = 1\nfolder = "/dev/shm"\n[server]\nport = 6000\n')
    file = load(path)
    assert file == {"depot": {"max_groups": 5, "share": 1.0, "folder": Path("/dev/shm")}, "server": {"port": 6000}}
    assert resolve(ServerSettings, flags={}, environment={}, file=file) == ServerSettings(port=6000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[depo]\n", "unknown table [depo]; did you mean 'depot'?"),
        ("[rooms]\n", "unknown table [rooms]; known are depot, server"),
        ("depot = 1\n", "expected a table [depot], got depot = 1"),
        ("[depot]\nmax_group = 1\n", "[depot] has no setting 'max_group'; did you mean 'max_groups'?"),
        ("[server]\ntls = 1\n", "[server] has no setting 'tls'; known are host, port, "),
        ('[depot]\nmax_groups = "5"\n', "[depot] max_groups: expected an integer, at least 1, got '5'"),
        ("[depot]\nmax_groups = true\n", "[depot] max_groups: expected an integer, at least 1, got True"),
        ("[depot]\nmax_groups = 1.0\n", "[depot] max_groups: expected an integer, at least 1, got 1.0"),
        ("[depot]\nshare = inf\n", "[depot] share: expected a number from 0 to 1, got inf"),
        (f"[depot]\nshare = 1{'0' * 400}\n", "[depot] share: expected a number from 0 to 1, got 1000"),
        ("[depot]\nstrict = 1\n", "[depot] strict: expected true or false, got 1"),
        ("[depot]\ntracks = 3\n", "[depot] tracks: expected an even number, got 3"),
        ("[depot]\nname = []\n", "[depot] name: expected a string, got []"),
        ("[server]\nport = 65536\n", "[server] port: expected an integer from 0 to 65535, got 65536"),
        (
            '[server]\nhost = "localhost"\n',
            "[server] host: expected an IP address such as 127.0.0.1, 0.0.0.0 or ::, got 'localhost'",
        ),
        ("[depot\n", "no valid TOML: "),
        (f"[depot]\nmax_groups = 1{'0' * 5_000}\n", "no valid TOML: "),
    ],
)
def test_a_wrong_file_is_refused_with_file_table_key_and_what_was_expected(tmp_path, text, expected):
    path = written(tmp_path, text)
    assert message_of(load, path).startswith(f"{path}: {expected}")


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    missing, binary = tmp_path / "missing.toml", tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert message_of(load, missing) == f"{missing}: No such file or directory"
    assert message_of(load, tmp_path) == f"{tmp_path}: Is a directory"
    assert message_of(load, binary).startswith(f"{binary}: no valid TOML: ")


def test_an_instance_made_by_hand_is_checked_too():
    assert message_of(DepotSettings, max_groups=0) == (
        "DepotSettings.max_groups: expected an integer, at least 1, got 0"
    )
    assert message_of(ServerSettings, host="::1%") == (
        "ServerSettings.host: expected an IP address such as 127.0.0.1, 0.0.0.0 or ::, got '::1%'"
    )


def test_a_service_may_give_a_setting_of_the_server_another_default():
    @dataclass(frozen=True)
    class SmallServerSettings(ServerSettings):
        max_concurrent_rpcs: int = setting(8, "Calls at once.", minimum=1)

    assert resolve(SmallServerSettings, flags={}, environment={}, file={}).max_concurrent_rpcs == 8
    assert [item.name for item in declared_settings(SmallServerSettings)] == [
        item.name for item in declared_settings(ServerSettings)
    ]


@pytest.mark.parametrize("settings_class", [DepotSettings, ServerSettings, LogSettings])
def test_settings_are_frozen_and_their_defaults_are_valid(settings_class):
    instance = settings_class()
    with pytest.raises(FrozenInstanceError):
        setattr(instance, declared_settings(settings_class)[0].name, None)
