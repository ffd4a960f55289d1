"""How commands reach a service: `--address`, `--timeout`, and what becomes of an error."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

timeout_option: Callable[[_F], _F] = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the service.",
)
"""Gives a command `--timeout`, in seconds."""
