"""`interlock preview`."""

from pathlib import Path

import click

from interlock_cli.errors import CommandError, printable
from interlock_cli.extras import extra
from interlock_cli.files import written_whole
from interlock_cli.npy import read_patches
from interlock_cli.output import echo_json, json_option
from interlock_cli.profiles import chosen_profile, profile_options

_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


@click.command()
@click.argument("patches", metavar="PATCHES.npy", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PICTURE",
    help=f"Where to write the picture; its ending chooses the format: {', '.join(_FORMATS)}.",
)
@profile_options
@json_option
def preview(patches: Path, output: Path, profile_name: str | None, profile_file: Path | None, as_json: bool) -> None:
    """Draw patches back as a picture.

    It is the picture that the model sees, grey padding included.

    PATCHES.npy is what `interlock preprocess` wrote: uint16 (the bits of bfloat16 numbers) of shape (rows of patches,
    patches a row, 3, patch size, patch size). The profile must be the one that the patches were made with.

    \b
    Examples:
      interlock preview cat.npy -o cat-seen.png
      interlock preview cat.npy -o cat-seen.jpg --profile deepseek-v4-flash-vision-exp
    """
    with extra("preprocess"):
        from interlock.vision import VisionError
        from interlock.vision import preview as drawn

    file_format = _FORMATS.get(output.suffix.lower())
    if file_format is None:
        raise click.UsageError(f"--output {str(output)!r} has no known ending; known are {', '.join(_FORMATS)}")
    profile = chosen_profile(profile_name, profile_file)
    try:
        picture = drawn(read_patches(patches), profile)
    except VisionError as error:
        raise CommandError(
            f"{printable(str(patches))}: {error}", reason=error.reason.value, field=error.field
        ) from None
    with written_whole(output) as handle:
        try:
            picture.save(handle, format=file_format)
        except ValueError as error:  # sides that the format cannot have
            raise CommandError(f"cannot write {printable(str(output))}: {error}") from None
    if as_json:
        echo_json({"output": str(output), "format": file_format, "width": picture.width, "height": picture.height})
    else:
        click.echo(f"{printable(str(output))}: {picture.width}x{picture.height} {file_format}")
