"""The vision profile of a command: `--profile` and `--profile-file`."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock_cli.errors import CommandError, printable
from interlock_cli.files import read_bounded

if TYPE_CHECKING:
    from interlock.vision import VisionProfile

_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_FILE_BYTES = 64 * 1024
_REQUIRED = ("patch_size", "downsample_ratio", "max_image_tokens", "min_pixels")
_CHANNELS = ("image_mean", "image_std")
_KNOWN = (*_REQUIRED, "max_wh_ratio", *_CHANNELS)


def profile_options(command: _F) -> _F:
    """Gives a command `--profile NAME` and `--profile-file FILE`, handed over as `profile_name` and `profile_file`."""
    command = click.option(
        "--profile-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Vision profile as JSON or TOML with the names of a model's config: " + ", ".join(_KNOWN) + ".",
    )(command)
    return click.option(
        "--profile", "profile_name", metavar="NAME", help="Published vision profile. Default: deepseek-v4.1."
    )(command)


def chosen_profile(name: str | None, file: Path | None) -> "VisionProfile":
    """The profile that the two options ask for.

    Raises:
        click.UsageError: Both are given.
        CommandError: No profile has this name, or the file is no legal profile.
    """
    from interlock.reasons import Reason
    from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES

    if name is not None and file is not None:
        raise click.UsageError("--profile and --profile-file exclude each other")
    if file is not None:
        return _read_profile(file)
    try:
        return PROFILES[DEFAULT_PROFILE_NAME if name is None else name]
    except KeyError:
        raise CommandError(
            f"no profile is named {name!r}; published are {', '.join(sorted(PROFILES))}",
            reason=Reason.UNKNOWN_PROFILE,
            field="profile",
        ) from None


def _read_profile(file: Path) -> "VisionProfile":
    from interlock.reasons import Reason
    from interlock.vision import VisionError, VisionProfile, check_profile

    def wrong(message: str, field: str = "profile") -> CommandError:
        return CommandError(f"{printable(str(file))}: {message}", reason=Reason.INVALID_PROFILE, field=field)

    try:
        text = read_bounded(file, _MAX_FILE_BYTES).decode()
        values = tomllib.loads(text) if file.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"neither JSON nor, by its name, TOML: {error}") from None
    if not isinstance(values, dict):
        raise wrong("expected an object with the profile's values")
    for key in values:
        if key not in _KNOWN:
            raise wrong(f"unknown key {key!r}; known are {', '.join(_KNOWN)}", key)
    for key in _REQUIRED:
        if key not in values:
            raise wrong(f"{key} is missing", f"profile.{key}")
    for key, value in values.items():
        if key in _CHANNELS:
            if not (isinstance(value, list) and len(value) == 3 and all(_is_number(v) for v in value)):
                raise wrong(f"{key} is {value!r}; expected three numbers: red, green, blue", f"profile.{key}")
            try:
                values[key] = tuple(map(float, value))
            except OverflowError:
                raise wrong(f"{key} has a number beyond any float", f"profile.{key}") from None
        elif type(value) is not int and not (key == "max_wh_ratio" and value is None):
            raise wrong(f"{key} is {value!r}; expected an integer", f"profile.{key}")
    profile = VisionProfile(**values)
    try:
        check_profile(profile)
    except VisionError as error:
        raise wrong(str(error), error.field) from None
    return profile


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
