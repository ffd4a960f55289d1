"""`interlock demo`."""

import time
from pathlib import Path

import click

from interlock_cli.errors import CommandError, one_line, printable
from interlock_cli.extras import extra
from interlock_cli.files import cannot
from interlock_cli.output import echo_json, json_option


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    metavar="FOLDER",
    help="Where to write the picture drawn back from the patches; made if missing.",
)
@json_option
def demo(output: Path, as_json: bool) -> None:
    """Show the main job on real input.

    Both services start on free ports of this machine. Two prefill ranks register by compare-and-swap, a third that does
    not fit is refused, a decode server checks that it fits and gets the topology. Then pictures go through Preprocess
    and come back as bf16 patches, every byte of which is compared with the reference. Each step shows what came back;
    if one does not turn out as told, the exit code is 1 and the message names the step.

    \b
    Examples:
      interlock demo
      interlock demo --output /tmp/interlock-demo
      interlock demo --json
    """
    with extra("all"):
        from interlock_cli.demo.stage import Stage
        from interlock_cli.demo.story import Story
        from interlock_cli.demo.telling import NotAsToldError, Teller

    try:
        output.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot("make folder", output, error) from None
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
