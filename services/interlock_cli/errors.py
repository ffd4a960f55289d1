"""How a command ends: exit codes, and the one line on stderr that says what went wrong."""

import enum
import os
from collections.abc import Mapping
from typing import NoReturn

import click


class ExitCode(enum.IntEnum):
    """What the exit code of `interlock` means. `interlock --help` shows these lines."""

    help: str

    def __new__(cls, number: int, help: str) -> "ExitCode":
        member = int.__new__(cls, number)
        member._value_ = number
        member.help = help
        return member

    DONE = 0, "done; everything is as asked or expected"
    FAILED = 1, "refused, failed, or not as expected: the message has the reason"
    USAGE = 2, "the command line or a settings file is wrong"
    UNREACHABLE = 3, "no service or etcd answered at the address, or not in time"
    UNUSABLE_STORE = 4, "the store cannot be opened: in use, damaged, of a newer version, or closed to this user"
    INTERNAL = 70, "a fault of interlock itself: please report it"
    INTERRUPTED = 130, "stopped by Ctrl-C"
    CLOSED_OUTPUT = 141, "whoever read the output stopped reading (as with `| head`)"
    TERMINATED = 143, "stopped by SIGTERM"


class CommandError(Exception):
    """Ends a command with one line on stderr.

    Args:
        message: What is wrong, for people.
        reason: Stable reason of the refusal (`interlock.reasons.Reason`), where there is one.
        field: Field, option or key at fault, where there is one.
        facts: What a program may want to know beyond that; shown by `--json`.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        field: str = "",
        facts: Mapping[str, object] | None = None,
        exit_code: ExitCode = ExitCode.FAILED,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.field = field
        self.facts = dict(facts or {})
        self.exit_code = exit_code

    def line(self) -> str:
        """The line for stderr, without its end."""
        notes = [self.reason] if self.reason else []
        if self.field:
            notes.append(f"field {self.field}")
        return one_line(f"interlock: {self.message}" + (f" [{', '.join(notes)}]" if notes else ""))

    def show(self) -> None:
        """Writes the line to stderr."""
        click.echo(self.line(), err=True)

    def document(self) -> dict[str, object]:
        """The error as `--json` shows it."""
        named = {"reason": self.reason, "field": self.field}
        return {
            "message": self.message,
            **{name: value for name, value in named.items() if value},
            **self.facts,
            "exit_code": int(self.exit_code),
        }


def ended(exit_code: ExitCode) -> NoReturn:
    """Ends the command where the output already says everything."""
    raise click.exceptions.Exit(int(exit_code))


def usage_line(error: click.UsageError) -> str:
    """A wrong command line as one line, with where to look."""
    message = error.format_message().rstrip(".")
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    path = error.ctx.command_path if error.ctx is not None else "interlock"
    return one_line(f"interlock: {message}; see '{path} --help'")


def one_line(text: str) -> str:
    """`text` without line ends and without anything that a terminal would take for a command."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """`text` with control characters and undecodable bytes of file names escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def os_error_text(error: OSError) -> str:
    """What the system says went wrong, without number and path."""
    return os.strerror(error.errno).lower() if error.errno else str(error)
