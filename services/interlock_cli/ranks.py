"""Options that name a rank, the sizes of a server, and what its ranks share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock_cli.spec_layouts import read_spec_layout

if TYPE_CHECKING:
    from interlock.kv.v1.pool_name_pb2 import PoolName
    from interlock.topology import Declaration

_F = TypeVar("_F", bound=Callable[..., Any])

COUNT = click.IntRange(min=0)
"""Any number of the protos. Where it ends is told by the rules of registration, for all fields at once."""

DIMENSIONS = {"dp": "data", "cp": "context", "tp": "tensor", "pp": "pipeline"}


def key_options(command: _F) -> _F:
    """Gives a command `--dp`, `--cp`, `--tp`, `--pp`."""
    for name, meaning in reversed(DIMENSIONS.items()):
        command = click.option(
            f"--{name}",
            type=COUNT,
            default=0,
            show_default=True,
            metavar="RANK",
            help=f"The rank's {meaning}-parallel rank.",
        )(command)
    return command


def size_options(command: _F) -> _F:
    """Gives a command `--dp-size`, `--cp-size`, `--tp-size`, `--pp-size`."""
    for name, meaning in reversed(DIMENSIONS.items()):
        command = click.option(
            f"--{name}-size",
            type=COUNT,
            default=1,
            show_default=True,
            metavar="N",
            help=f"{meaning.capitalize()}-parallel size of the server.",
        )(command)
    return command


def layout_options(command: _F) -> _F:
    """Gives a command what prefill and decode must agree on: page size, KV dtype and layout, DSpark layout, pools."""
    for option in (
        click.option(
            "--pool",
            "pools",
            multiple=True,
            metavar="NAME",
            help="KV pool transferred; repeat it. `interlock pools` lists them.",
        ),
        click.option("--no-spec-layout", is_flag=True, help="Declare that there is no DSpark layout."),
        click.option(
            "--spec-layout",
            type=click.Path(path_type=Path),
            metavar="FILE.json",
            help="DSpark layout: the engine's JSON object, or null for none.",
        ),
        click.option("--kv-layout", metavar="NAME", help="Name of the KV byte layout. Not given: undeclared."),
        click.option(
            "--kv-cache-dtype", metavar="DTYPE", help="KV data type, for example bfloat16. Not given: undeclared."
        ),
        click.option("--page-size", type=COUNT, required=True, metavar="TOKENS", help="Tokens a KV page."),
    ):
        command = option(command)
    return command


def chosen_spec_layout(spec_layout: Path | None, no_spec_layout: bool) -> "Declaration":
    """What `--spec-layout` and `--no-spec-layout` declare. Neither: undeclared.

    Raises:
        click.UsageError: Both are given.
        CommandError: The file is no layout.
    """
    from interlock.topology import DECLARED_NONE

    if spec_layout is not None and no_spec_layout:
        raise click.UsageError("--spec-layout and --no-spec-layout exclude each other")
    if spec_layout is not None:
        return read_spec_layout(spec_layout)
    return DECLARED_NONE if no_spec_layout else None


def chosen_pools(names: tuple[str, ...]) -> "tuple[PoolName.ValueType, ...]":
    """The pools that `--pool` names.

    Raises:
        click.UsageError: A name is unknown.
    """
    from interlock.pools import parse_pool_name

    try:
        return tuple(parse_pool_name(name) for name in names)
    except ValueError as error:
        raise click.UsageError(f"--pool: {error}") from None
