"""How far a command with many pictures has come, and how fast it is."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""One picture is done; it had so many pixels, 0 if it failed."""


@contextmanager
def picture_progress(total: int) -> Iterator[Advance]:
    """A progress bar on stderr with pictures and megapixels a second, for several pictures and a terminal."""
    if total == 1 or not sys.stderr.isatty():
        yield lambda pixels: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("pictures"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
    )
    begun = time.monotonic()
    pictures = pixels_done = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, speed="")

        def advance(pixels: int) -> None:
            nonlocal pictures, pixels_done
            pictures += 1
            pixels_done += pixels
            progress.update(task, advance=1, speed=speed(pictures, pixels_done, time.monotonic() - begun))

        yield advance


def speed(pictures: int, pixels: int, seconds: float) -> str:
    """Pictures and megapixels a second, in as many digits as tell something."""
    seconds = max(seconds, 1e-3)
    return f"{_number(pictures / seconds)}/s  {_number(pixels / 1e6 / seconds)} MP/s"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}"
