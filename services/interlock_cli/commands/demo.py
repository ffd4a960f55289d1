"""`interlock demo`."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock_cli.errors import CommandError, one_line, printable
from interlock_cli.extras import extra
from interlock_cli.files import cannot
from interlock_cli.output import echo_json, json_option

if TYPE_CHECKING:
    from interlock_cli.demo.clients.programs import Program


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    metavar="FOLDER",
    help="Where to write the picture drawn back from the patches, or the logs of --clients; made if missing.",
)
@click.option(
    "--clients",
    is_flag=True,
    help="Instead: build the client programs of examples/clients and run them against one pair of services.",
)
@click.option("--only", metavar="LANGUAGE,...", help="With --clients: these languages only.")
@json_option
def demo(output: Path, clients: bool, only: str | None, as_json: bool) -> None:
    """Show the main job on real input.

    Both services start on free ports of this machine. Two prefill ranks register by compare-and-swap, a third that does
    not fit is refused, a decode server checks that it fits and gets the topology. Then pictures go through Preprocess
    and come back as bf16 patches, every byte of which is compared with the reference. Each step shows what came back;
    if one does not turn out as told, the exit code is 1 and the message names the step.

    With --clients, which needs the repository's checkout, the same is done by a program in each of several languages.
    Each is built by the tools of its language, and each of its steps is shown; a tool that is missing, and a step that
    fails, make the exit code 1.

    \b
    Examples:
      interlock demo
      interlock demo --output /tmp/interlock-demo
      interlock demo --json
      interlock demo --clients
      interlock demo --clients --only go,rust
    """
    if only is not None and not clients:
        raise click.UsageError("--only goes with --clients")
    with extra("all"):
        from interlock_cli.demo.clients.programs import PROGRAMS

    programs = _chosen(PROGRAMS, only)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot("make folder", output, error) from None
    if clients:
        _run_clients(programs, output, as_json)
    else:
        _tell_story(output, as_json)


def _chosen(programs: "Sequence[Program]", only: str | None) -> "Sequence[Program]":
    if only is None:
        return programs
    names = [name.strip() for name in only.split(",")]
    known = [program.language for program in programs]
    if strangers := [name for name in names if name not in known]:
        raise click.UsageError(f"no client is written in {strangers[0]!r}; there are {', '.join(known)}")
    return [program for program in programs if program.language in names]


def _tell_story(output: Path, as_json: bool) -> None:
    with extra("all"):
        from interlock_cli.demo.stage import Stage
        from interlock_cli.demo.story import Story
        from interlock_cli.demo.telling import NotAsToldError, Teller

    started = time.perf_counter()
    teller = Teller(quiet=as_json)
    with Stage() as stage:
        story = Story(stage, teller, output)
        try:
            for title, step in story.steps:
                teller.step(title)
                try:
                    step()
                except Exception as error:
                    why = (
                        str(error)
                        if isinstance(error, NotAsToldError | CommandError)
                        else f"{type(error).__name__}: {error}"
                    )
                    raise CommandError(
                        f"step {len(teller.steps)} ({title}) is not as told: {one_line(why)}",
                        facts={"step": len(teller.steps), "steps": teller.steps},
                    ) from error
        finally:
            story.close()
    seconds = time.perf_counter() - started
    if as_json:
        echo_json({"steps": teller.steps, "output": str(output), "seconds": round(seconds, 3)})
    else:
        click.echo(
            f"\nAll {len(teller.steps)} steps are as told, in {seconds:.1f} s. Look at {printable(str(output))}."
        )


def _run_clients(programs: "Sequence[Program]", output: Path, as_json: bool) -> None:
    with extra("all"):
        from interlock_cli.demo.clients.checkout import NoCheckoutError, find_checkout
        from interlock_cli.demo.clients.services import ServiceError
        from interlock_cli.demo.clients.story import results_of
        from interlock_cli.demo.telling import Teller

    started = time.perf_counter()
    teller = Teller(quiet=as_json)
    try:
        rows = results_of(programs, find_checkout(), output.absolute(), teller)
    except (NoCheckoutError, ServiceError) as error:
        raise CommandError(str(error)) from None
    seconds = time.perf_counter() - started
    failed = [row for row in rows if not row["ok"]]
    answer = {"results": rows, "output": str(output), "seconds": round(seconds, 3)}
    if failed:
        first = failed[0]
        raise CommandError(
            f"{len(failed)} of {len(rows)} steps failed; the first is {first['step']} of {first['language']}: "
            f"{one_line(str(first['detail']))}",
            facts=answer,
        )
    if as_json:
        echo_json(answer)
    else:
        click.echo(f"\nAll {len(rows)} steps of {len(programs)} languages are ok, in {seconds:.1f} s.")
