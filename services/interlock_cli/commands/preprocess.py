"""`interlock preprocess`."""

import dataclasses
import os
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock_cli.errors import CommandError, ExitCode, ended
from interlock_cli.extras import extra
from interlock_cli.files import cannot
from interlock_cli.npy import write_patches
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.profiles import chosen_profile, profile_options
from interlock_cli.progress import picture_progress
from interlock_cli.services import timeout_option

if TYPE_CHECKING:
    from interlock_cli.pictures import Outcome


def _colour(_: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int, int] | None:
    """Red, green and blue of `RRGGBB`."""
    if text is None:
        return None
    match = re.fullmatch(r"#?([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no colour; expected RRGGBB, for example ffffff for white", param=param)
    red, green, blue = (int(level, 16) for level in match.groups())
    return red, green, blue


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT.npy|FOLDER",
    help="One picture: the file to write, or an existing folder. Several: a folder, made if missing, that gets "
    "NAME.npy for each, for example cat.jpg.npy.",
)
@click.option("--address", metavar="HOST:PORT", help="Have the work done by this Preprocess service.")
@timeout_option("With --address: how long to wait for the service, times the number of pictures.")
@click.option(
    "--shared-memory-folder",
    type=click.Path(path_type=Path),
    envvar="INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER",
    show_envvar=True,
    metavar="FOLDER",
    help="With --address: the service's shared-memory folder, as this side sees it; patches then do not go through a "
    "socket. It is found out whether both sides see the same. Default: /dev/shm/interlock, if it is there.",
)
@click.option("--kernel", metavar="NAME", help="Kernel to use; all give the same bytes. Default: the fastest here.")
@profile_options
@click.option(
    "--exif-orientation",
    type=click.Choice(["ignore", "apply"]),
    default="ignore",
    show_default=True,
    help="Camera orientation: take the pixels as stored, or turn the picture upright.",
)
@click.option(
    "--alpha-handling",
    type=click.Choice(["drop", "composite"]),
    default="drop",
    show_default=True,
    help="Transparency: drop it, so that hidden colours show, or composite over --background.",
)
@click.option(
    "--background", metavar="RRGGBB", callback=_colour, help="Colour under transparent pixels. Default: ffffff, white."
)
@click.option(
    "--sixteen-bit-grey",
    type=click.Choice(["clip", "high_byte"]),
    default="clip",
    show_default=True,
    help="16-bit grey: clip at 255, or take the high byte.",
)
@json_option
def preprocess(
    files: tuple[Path, ...],
    output: Path,
    address: str | None,
    timeout: float,
    shared_memory_folder: Path | None,
    kernel: str | None,
    profile_name: str | None,
    profile_file: Path | None,
    exif_orientation: str,
    alpha_handling: str,
    background: tuple[int, int, int] | None,
    sixteen_bit_grey: str,
    as_json: bool,
) -> None:
    """Turn pictures into bf16 patches.

    Patches are what the vision tower of a model eats. They are made in this process, or with --address by a Preprocess
    service; the bytes are the same. A service on this host that shares memory puts them there, instead of sending them
    through a socket. Each picture becomes a .npy file of uint16 (the bits of bfloat16 numbers) with
    shape (rows of patches, patches a row, 3, patch size, patch size). A file is written whole or not at all. Of several
    pictures a bad one is reported, the others are written, and the exit code is 1.

    The answer has a row for each picture: its SIZE in pixels, the SHAPE of its patches, the TOKENS that it takes in the
    language model, and the milliseconds of decoding and kernel.

    \b
    Examples:
      interlock preprocess cat.jpg -o cat.npy
      interlock preprocess cat.jpg dog.png -o patches --exif-orientation apply
      interlock preprocess cat.jpg -o cat.npy --address 127.0.0.1:50052
      interlock preprocess cat.jpg dog.png -o patches --address 127.0.0.1:50052
    """
    if background is not None and alpha_handling != "composite":
        raise click.UsageError("--background needs --alpha-handling composite")
    if kernel is not None and address is not None:
        raise click.UsageError("--kernel and --address exclude each other: a service has its own kernel")
    with extra("preprocess"):
        from interlock.vision import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey
        from interlock_cli.pictures import make_here, make_there

    options = DecodeOptions(
        ExifOrientation(exif_orientation),
        AlphaHandling(alpha_handling),
        background or (255, 255, 255),
        SixteenBitGrey(sixteen_bit_grey),
    )
    if address is None:
        outcomes = make_here(files, chosen_profile(profile_name, profile_file), options, kernel)
    else:
        profile = profile_name or chosen_profile(None, profile_file)
        outcomes = make_there(files, profile, options, address, timeout * len(files), shared_memory_folder)
    outputs = _outputs(files, output)
    documents: dict[int, dict[str, Any]] = {}
    failed = False
    with closing(outcomes), picture_progress(len(files)) as advance:
        for index, outcome in outcomes:
            pixels = 0
            try:
                documents[index] = document = _written(outcome, files[index], outputs[index])
                pixels = document["width"] * document["height"]
            except CommandError as error:
                if len(files) == 1:
                    raise
                failed = True
                documents[index] = {"file": str(files[index]), "error": error.document()}
                error.show()
            advance(pixels)
    pictures = [documents[index] for index in sorted(documents)]
    if as_json:
        echo_json({"pictures": pictures})
    else:
        _echo_written([picture for picture in pictures if "error" not in picture])
    if failed:
        ended(ExitCode.FAILED)


def _outputs(files: tuple[Path, ...], output: Path) -> list[Path]:
    """Where the patches of each file go; a folder is made.

    Raises:
        CommandError: The folder cannot be made.
        click.UsageError: Two pictures would be written to one file, or one over a source.
    """
    into_folder = len(files) > 1 or os.path.isdir(output)
    outputs = [output / f"{file.name}.npy" if into_folder else output for file in files]
    source_of: dict[Path, Path] = {}
    for file, target in zip(files, outputs, strict=True):
        if target in source_of:
            raise click.UsageError(
                f"{str(source_of[target])!r} and {str(file)!r} would both be written to {str(target)!r}"
            )
        source_of[target] = file
    sources = {os.path.realpath(file) for file in files}
    for target in outputs:
        if os.path.realpath(target) in sources:
            raise click.UsageError(f"{str(target)!r} is a source, and would be overwritten")
    if len(files) > 1:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise cannot("make folder", output, error) from None
    return outputs


def _written(outcome: "Outcome", file: Path, output: Path) -> dict[str, Any]:
    """Writes the patches of one picture, and says what was written."""
    if isinstance(outcome, CommandError):
        raise outcome
    write_patches(output, outcome.patches)
    return {
        "file": str(file),
        "output": str(output),
        "format": outcome.format,
        "width": outcome.width,
        "height": outcome.height,
        "shape": list(outcome.patches.shape),
        "bytes": outcome.patches.nbytes,
        "plan": dataclasses.asdict(outcome.plan),
        "decode_seconds": outcome.decode_seconds,
        "kernel_seconds": outcome.kernel_seconds,
        "in_shared_memory": outcome.in_shared_memory,
    }


def _echo_written(pictures: list[dict[str, Any]]) -> None:
    if pictures:
        echo_table(
            ["OUTPUT", "FORMAT", "SIZE", "SHAPE", "TOKENS", "DECODE MS", "KERNEL MS"],
            [
                (
                    picture["output"],
                    picture["format"],
                    f"{picture['width']}x{picture['height']}",
                    "x".join(map(str, picture["shape"])),
                    picture["plan"]["token_count"],
                    picture["decode_seconds"] * 1000,
                    picture["kernel_seconds"] * 1000,
                )
                for picture in pictures
            ],
        )
