"""`interlock plan`."""

import dataclasses
import re
from pathlib import Path

import click

from interlock_cli.errors import ExitCode, ended
from interlock_cli.extras import extra
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.profiles import chosen_profile, profile_options


def _sizes(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Width and height of each `WxH`."""
    sizes = []
    for text in texts:
        match = re.fullmatch(r"([0-9]{1,10})[xX]([0-9]{1,10})", text)
        if match is None:
            raise click.BadParameter(
                f"{text!r} is no size; expected WIDTHxHEIGHT in pixels, for example 1600x1200", param=param
            )
        sizes.append((int(match[1]), int(match[2])))
    return tuple(sizes)


@click.command()
@click.argument("sizes", metavar="WxH...", nargs=-1, required=True, callback=_sizes)
@profile_options
@json_option
def plan(
    sizes: tuple[tuple[int, int], ...], profile_name: str | None, profile_file: Path | None, as_json: bool
) -> None:
    """Show the geometry that pictures get.

    Only their sizes are needed, no picture.

    SIZE is the picture, WIDTHxHEIGHT in pixels. It is resized to RESIZE and placed on a grey CANVAS with its first
    pixel at column LEFT, row TOP. The canvas is cut into PATCHES (columns x rows), which become TOKENS of the language
    model: TOKEN GRID is their columns x rows, and each row adds one token, the picture two. A size without a legal plan
    is a row with the reason, and the exit code is 1.

    \b
    Examples:
      interlock plan 1600x1200 28x251
      interlock plan 1600x1200 --profile deepseek-v4-flash-vision-exp --json
    """
    with extra("preprocess"):
        from interlock.vision import VisionError
        from interlock.vision import plan as plan_of

    profile = chosen_profile(profile_name, profile_file)
    plans: list[dict[str, object]] = []
    rows: list[tuple[object, ...]] = []
    failed = False
    for width, height in sizes:
        size = {"width": width, "height": height}
        try:
            p = plan_of(width, height, profile)
        except VisionError as error:
            failed = True
            plans.append({**size, "error": {"message": str(error), "reason": error.reason.value, "field": error.field}})
            rows.append((f"{width}x{height}", *[None] * 7, f"{error} [{error.reason}]"))
            continue
        plans.append({**size, "plan": dataclasses.asdict(p)})
        rows.append(
            (
                f"{width}x{height}",
                f"{p.resize_width}x{p.resize_height}",
                f"{p.canvas_width}x{p.canvas_height}",
                p.left,
                p.top,
                f"{p.grid_width}x{p.grid_height}",
                f"{p.token_grid_width}x{p.token_grid_height}",
                p.token_count,
                None,
            )
        )
    if as_json:
        echo_json({"profile": dataclasses.asdict(profile), "plans": plans})
    else:
        columns = ["SIZE", "RESIZE", "CANVAS", "LEFT", "TOP", "PATCHES", "TOKEN GRID", "TOKENS", "ERROR"]
        shown = len(columns) if failed else -1
        echo_table(columns[:shown], [row[:shown] for row in rows])
    if failed:
        ended(ExitCode.FAILED)
