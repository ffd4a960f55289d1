"""`interlock warmup`."""

from pathlib import Path
from time import perf_counter

import click

from interlock_cli.errors import CommandError, printable
from interlock_cli.extras import extra
from interlock_cli.output import echo_json, json_option


@click.command()
@click.option(
    "--kernel-cache-folder",
    type=click.Path(path_type=Path),
    envvar="INTERLOCK_PREPROCESS_KERNEL_CACHE_FOLDER",
    show_envvar=True,
    metavar="FOLDER",
    help="Where to keep them, as for the service. Not set: beside the package, else the user's own cache folder.",
)
@json_option
def warmup(kernel_cache_folder: Path | None, as_json: bool) -> None:
    """Compile the kernels and decoders of Preprocess ahead of time.

    Each kernel runs once and is compared with the reference. What was compiled stays on disk, for this CPU and this
    version of interlock: run it where an image is built, and the service starts at once, from a read-only file system
    too. The exit code is 1 if it cannot be kept.

    \b
    Examples:
      interlock warmup
      interlock warmup --kernel-cache-folder /opt/interlock/kernels
    """
    with extra("preprocess"):
        from interlock.vision import kernels, warm_up

    if kernel_cache_folder is not None:
        kernels.keep_compiled_in(kernel_cache_folder)
    start = perf_counter()
    names = [kernel.name for kernel in kernels.warm_up()]
    warm_up()
    seconds = perf_counter() - start
    folder = kernels.kept_in()
    if "simd" in names and (folder is None or kernel_cache_folder not in (None, *folder.parents)):
        raise CommandError(f"compiled kernels cannot be kept in {printable(str(kernel_cache_folder or 'any folder'))}")
    if as_json:
        echo_json({"kernels": names, "kept_in": str(folder) if folder else None, "seconds": round(seconds, 3)})
        return
    kept = f"; compiled code is kept in {printable(str(folder))}" if folder else ""
    click.echo(f"kernels that work here: {', '.join(names)} ({seconds:.1f} s){kept}")
