"""How commands reach a service: `--address`, `--timeout`, and what becomes of an error."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock_cli.connection import connection_credentials
from interlock_cli.errors import CommandError, ExitCode

if TYPE_CHECKING:
    from interlock.client import BootstrapClient, RefusedError, WatchSnapshot

_F = TypeVar("_F", bound=Callable[..., Any])


def timeout_option(help: str) -> Callable[[_F], _F]:
    """Gives a command `--timeout`, in seconds."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True, max=86_400),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help=help,
    )


def bootstrap_options(command: _F) -> _F:
    """Gives a command `--address` of a Bootstrap service, and `--timeout`."""
    command = timeout_option("How long to wait for an answer.")(command)
    return click.option(
        "--address",
        envvar="INTERLOCK_ADDRESS",
        default="127.0.0.1:50051",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Where the Bootstrap service listens.",
    )(command)


@contextmanager
def bootstrap_at(address: str, timeout: float) -> "Iterator[BootstrapClient]":
    """A client of the Bootstrap service at `address`, for a block whose errors become a `CommandError`."""
    with calling():
        from interlock.client import BootstrapClient

        with BootstrapClient(address, timeout=timeout, credentials=connection_credentials()) as client:
            yield client


def snapshot_of(client: "BootstrapClient", group: str, timeout: float) -> "WatchSnapshot":
    """A group as it is: the first item of a watch."""
    from interlock.client import WatchSnapshot

    with closing(client.watch_topology(group, timeout=timeout)) as items:
        return next(item for item in items if isinstance(item, WatchSnapshot))


@contextmanager
def calling() -> Iterator[None]:
    """Around calls to a service: what the client raises becomes a `CommandError`.

    Raises:
        CommandError: The service refused, or did not answer.
        click.UsageError: What was to be sent cannot be.
    """
    from interlock.client import CredentialsError, DeadlineError, InterlockError, RefusedError, UnreachableError

    try:
        yield
    except RefusedError as error:
        raise refused(error) from None
    except (UnreachableError, DeadlineError) as error:
        raise CommandError(str(error), exit_code=ExitCode.UNREACHABLE) from None
    except CredentialsError as error:  # the command line or the environment named them
        raise click.UsageError(str(error)) from None
    except InterlockError as error:
        raise CommandError(str(error)) from None
    except UnicodeEncodeError:
        raise click.UsageError("a text on the command line is no valid UTF-8") from None
    except ValueError as error:  # an address that cannot be one
        raise click.UsageError(str(error)) from None


def refused(error: "RefusedError", *, what: str = "") -> CommandError:
    """The end of a command that a service refused: its message, and each field that it named.

    Args:
        error: What the client raised.
        what: Names what was refused, where the command works on several things.
    """
    violations = [{"field": field, "description": description} for field, description in error.field_violations]
    message = error.message or error.code.name
    unnamed = [f"{v['field']}: {v['description']}" for v in violations if v["description"] not in message]
    facts = {"status": error.code.name, **({"field_violations": violations} if len(violations) > 1 else {})}
    return CommandError(
        "; ".join([f"{what}: {message}" if what else message, *unnamed]),
        reason=str(error.reason),
        field=violations[0]["field"] if len(violations) == 1 else "",
        facts=facts,
    )
