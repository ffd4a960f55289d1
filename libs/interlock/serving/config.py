"""Settings: each is declared once, with its default, help and bounds, and may come from flag, environment or file.

A part of the program declares what can be set as a frozen dataclass::

    @dataclass(frozen=True)
    class BootstrapSettings(Settings):
        table = "bootstrap"
        max_groups: int = setting(10_000, "Groups kept at once.", minimum=1)

From it follow the flag `--max-groups`, the variable `INTERLOCK_BOOTSTRAP_MAX_GROUPS`, and the key `max_groups` in the
table `[bootstrap]` of the settings file (TOML). `resolve` makes the instance: a flag goes before the environment, that
before the file, that before the default. Whatever is wrong is refused with the place it came from.
"""

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

ENVIRONMENT_PREFIX = "INTERLOCK"

SettingsFile = Mapping[str, Mapping[str, object]]
"""A settings file that was read and checked: the keys of each table."""

_T = TypeVar("_T")
_S = TypeVar("_S", bound="Settings")

_EXACT_INTEGERS = 2**53  # what a float holds exactly
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path"}


class SettingsError(Exception):
    """Settings are wrong. Each fault is one line that names where it came from and what was expected."""

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Faults:
    """Gathers what is wrong with settings, so that all of it is told at once."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Around what may raise a `SettingsError`: it is kept for `raise_if_any`."""
        try:
            yield
        except SettingsError as error:
            self._found += error.faults

    def raise_if_any(self) -> None:
        """
        Raises:
            SettingsError: With everything that was gathered.
        """
        if self._found:
            raise SettingsError(*self._found)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One thing that can be set."""

    table: str
    flag_prefix: str
    name: str
    type: type[bool] | type[int] | type[float] | type[str] | type[Path]
    optional: bool
    """None is a value too: not set."""
    default: object
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    validate: Callable[[Any], None] | None
    """Raises ValueError on a value that is wrong beyond type and bounds."""

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return f"--{self.flag_prefix}{self.name}".replace("_", "-")

    @property
    def variable(self) -> str:
        """Name in the environment."""
        return f"{ENVIRONMENT_PREFIX}_{self.table}_{self.name}".upper()

    @property
    def expected(self) -> str:
        """What a value must be, for people."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        expected = _TYPE_NAMES[self.type]
        if self.minimum is not None and self.maximum is not None:
            return f"{expected} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"{expected}, at least {self.minimum}"
        if self.maximum is not None:
            return f"{expected}, at most {self.maximum}"
        return expected

    def check(self, value: object, origin: str) -> Any:
        """The value in the setting's type.

        Raises:
            SettingsError: It has another type, is out of bounds, or the setting's own check refuses it.
        """
        if value is None and self.optional:
            return None
        if self.type is float and type(value) is int and abs(value) <= _EXACT_INTEGERS:
            value = float(value)
        elif self.type is Path and isinstance(value, str):
            value = Path(value)
        of_type = isinstance(value, self.type) and (self.type is bool or not isinstance(value, bool))
        if not of_type or not self._in_bounds(value):
            raise SettingsError(f"{origin}: expected {self.expected}, got {value!r}")
        if self.validate is not None:
            try:
                self.validate(value)
            except ValueError as error:
                raise SettingsError(f"{origin}: {error}") from None
        return value

    def parse(self, text: str, origin: str) -> Any:
        """The value that a text (of a flag or variable) means.

        Raises:
            SettingsError: It means none, or one that `check` refuses.
        """
        value: object = text
        if self.type is bool:
            value = True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
        elif self.type in (int, float):
            try:
                value = self.type(text)
            except ValueError:
                value = text
        return self.check(value, origin)

    def _in_bounds(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.type is float and not math.isfinite(value):
            return False
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)


def setting(
    default: _T,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Collection[str] = (),
    validate: Callable[[Any], None] | None = None,
) -> _T:
    """Declares one setting as a field of a `Settings` dataclass. Types: bool, int, float, str, Path; each `| None`.

    Args:
        default: The value when nothing sets it.
        help: One or two sentences with the unit, for `--help` and the docs.
        minimum: The least value allowed.
        maximum: The greatest value allowed.
        choices: The strings allowed.
        validate: A further check; raises ValueError.
    """
    declared = {
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "choices": tuple(choices),
        "validate": validate,
    }
    return dataclasses.field(default=default, metadata=declared)


class Settings:
    """Base of the dataclasses that declare settings. An instance is always valid: it checks itself.

    Raises:
        SettingsError: On making an instance with a value of another type or out of bounds.
    """

    table: ClassVar[str]
    """Name of the table in the settings file, and part of the variables' names."""
    flag_prefix: ClassVar[str] = ""
    """What its flags begin with, where their names alone would not say what they are about: `log-`."""

    def __post_init__(self) -> None:
        for declared in declared_settings(type(self)):
            declared.check(getattr(self, declared.name), f"{type(self).__name__}.{declared.name}")


def declared_settings(settings_class: type[Settings]) -> tuple[Setting, ...]:
    """Everything that can be set in a class, in the order of its declaration."""
    hints = typing.get_type_hints(settings_class)
    declared = []
    for field in dataclasses.fields(cast(Any, settings_class)):
        hint, optional = hints[field.name], False
        if isinstance(hint, types.UnionType):
            (hint,) = (member for member in hint.__args__ if member is not types.NoneType)
            optional = True
        declared.append(
            Setting(
                table=settings_class.table,
                flag_prefix=settings_class.flag_prefix,
                name=field.name,
                type=hint,
                optional=optional,
                default=field.default,
                **field.metadata,
            )
        )
    return tuple(declared)


def load_settings_file(path: Path, settings_classes: Collection[type[Settings]]) -> SettingsFile:
    """Reads a settings file and checks all of it, the tables of services that do not run included.

    Args:
        path: The file, TOML.
        settings_classes: All classes whose tables the file may have.

    Raises:
        SettingsError: The file cannot be read or is no TOML; or with each table and key that is unknown (the closest
            known one is named) and each value that is wrong.
    """
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise SettingsError(f"{path}: no valid TOML: {error}") from None

    known_tables = {settings_class.table: settings_class for settings_class in settings_classes}
    checked: dict[str, dict[str, object]] = {}
    faults = Faults()
    for table, keys in tables.items():
        with faults.gathered():
            if table not in known_tables:
                raise SettingsError(f"{path}: unknown table [{table}]{_closest(table, known_tables)}")
            if not isinstance(keys, dict):
                raise SettingsError(f"{path}: expected a table [{table}], got {table} = {keys!r}")
            known_keys = {declared.name: declared for declared in declared_settings(known_tables[table])}
            checked[table] = {}
            for key, value in keys.items():
                with faults.gathered():
                    if key not in known_keys:
                        raise SettingsError(f"{path}: [{table}] has no setting {key!r}{_closest(key, known_keys)}")
                    checked[table][key] = known_keys[key].check(value, f"{path}: [{table}] {key}")
    faults.raise_if_any()
    return checked


def resolve(
    settings_class: type[_S],
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: SettingsFile,
) -> _S:
    """The settings in force: flag before environment before file before default.

    Variables that belong to no setting are ignored, even with our prefix: Kubernetes puts such ones into every pod
    (`INTERLOCK_BOOTSTRAP_PORT=tcp://10.0.0.7:50051` for a Service named `interlock-bootstrap`). An empty variable
    counts as not set.

    Args:
        settings_class: What to resolve.
        flags: Values of flags by setting name, as texts or in the setting's type. None: the flag was not given.
        environment: For example `os.environ`.
        file: What `load_settings_file` gave; `{}` without a file.

    Raises:
        SettingsError: With each value that is wrong, beginning with its flag or variable.
    """
    values = dict(file.get(settings_class.table, {}))
    faults = Faults()
    for declared in declared_settings(settings_class):
        flag, text = flags.get(declared.name), environment.get(declared.variable)
        with faults.gathered():
            if isinstance(flag, str):
                values[declared.name] = declared.parse(flag, declared.flag)
            elif flag is not None:
                values[declared.name] = declared.check(flag, declared.flag)
            elif text:
                values[declared.name] = declared.parse(text, declared.variable)
    faults.raise_if_any()
    return settings_class(**values)


def _closest(name: str, known: Collection[str]) -> str:
    match = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {match[0]!r}?" if match else f"; known are {', '.join(known)}"
