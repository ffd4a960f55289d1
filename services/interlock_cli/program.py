"""The `interlock` group: its help, its commands, and how every command ends."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

from interlock import __version__
from interlock_cli.commands.bench import bench
from interlock_cli.commands.certs import certs
from interlock_cli.commands.check import check
from interlock_cli.commands.config import config
from interlock_cli.commands.demo import demo
from interlock_cli.commands.doctor import doctor
from interlock_cli.commands.group import group
from interlock_cli.commands.info import info
from interlock_cli.commands.instance import instance
from interlock_cli.commands.plan import plan
from interlock_cli.commands.pools import pools
from interlock_cli.commands.preprocess import preprocess
from interlock_cli.commands.preview import preview
from interlock_cli.commands.route import route
from interlock_cli.commands.serve import serve
from interlock_cli.commands.token import token
from interlock_cli.commands.topology import topology
from interlock_cli.commands.warmup import warmup
from interlock_cli.connection import connection_options
from interlock_cli.errors import CommandError, ExitCode, one_line, os_error_text, usage_line
from interlock_cli.groups import CommandGroup

_NAME = "interlock"
_COMPLETION_VARIABLE = "_INTERLOCK_COMPLETE"


class Program(CommandGroup):
    """The whole program. Whatever a command raises becomes one line on stderr and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        if instruction := os.environ.get(_COMPLETION_VARIABLE):
            sys.exit(shell_complete(self, {}, _NAME, _COMPLETION_VARIABLE, instruction))
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no fault
        exit_code: int = ExitCode.DONE
        try:
            if args is None:
                signal.signal(signal.SIGTERM, _terminated)
            try:
                with self.make_context(_NAME, list(sys.argv[1:] if args is None else args), **extra) as ctx:
                    self.invoke(ctx)
            except click.exceptions.Exit as end:
                exit_code = end.exit_code
            sys.stdout.flush()
        except KeyboardInterrupt:
            _end(ExitCode.INTERRUPTED, "interlock: stopped by Ctrl-C")
        except click.UsageError as error:
            _end(ExitCode.USAGE, usage_line(error))
        except CommandError as error:
            _end(error.exit_code, error.line())
        except click.ClickException as error:
            _end(ExitCode.FAILED, one_line(f"interlock: {error.format_message()}"))
        except OSError as error:  # of stdout: commands name the faults of their own files
            _abandon_stdout()
            if error.errno == errno.EPIPE:
                _end(ExitCode.CLOSED_OUTPUT)
            _end(ExitCode.FAILED, f"interlock: cannot write the output: {os_error_text(error)}")
        except Exception as error:
            if os.environ.get("INTERLOCK_TRACEBACK"):
                raise
            fault = one_line(f"{type(error).__name__}: {error}")
            _end(ExitCode.INTERNAL, f"interlock: internal error: {fault} (INTERLOCK_TRACEBACK=1 shows where)")
        sys.exit(exit_code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), code.help) for code in ExitCode])


def _end(exit_code: int, line: str = "") -> NoReturn:
    if line:
        click.echo(line, err=True)
    sys.exit(exit_code)


def _terminated(*_: object) -> NoReturn:
    """On SIGTERM: ends by an exception, so that nothing half-done stays behind."""
    sys.exit(ExitCode.TERMINATED)


def _abandon_stdout() -> None:
    """Lets the interpreter's last flush succeed, so that it adds no message of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=_NAME, message="%(prog)s %(version)s")
@connection_options
def main(**_: object) -> None:
    """Interlock: control plane and image front of prefill/decode-disaggregated LLM serving.

    Every command explains itself with examples under --help, and answers in JSON with --json. Answers go to stdout,
    messages to stderr. What proves who you are to a service stands before the command: interlock --token-file FILE ...

    \b
    Examples:
      interlock demo
      interlock plan 1600x1200
      interlock preprocess cat.jpg -o cat.npy
    """


for _command in (
    demo,
    serve,
    preprocess,
    preview,
    plan,
    group,
    instance,
    route,
    info,
    check,
    pools,
    warmup,
    bench,
    config,
    doctor,
    token,
    topology,
    certs,
):
    main.add_command(_command)
