"""From picture files to patches, in this process or by a Preprocess service: the same bytes."""

import os
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from interlock.client import ImageResult, PreprocessClient, RefusedError
from interlock.vision import MAX_OUTPUT_BYTES, DecodeOptions, Plan, VisionError, VisionProfile, decode, kernels, plan
from interlock_cli.connection import connection_credentials
from interlock_cli.errors import CommandError, printable
from interlock_cli.files import read_bounded
from interlock_cli.services import calling, refused

MAX_PICTURE_BYTES = 512 * 1024 * 1024
"""A larger file is not read: as much as the raw pixels of the largest picture take."""


@dataclass(frozen=True, eq=False)
class Made:
    """The patches of one picture, and where they come from."""

    patches: NDArray[np.uint16]
    plan: Plan
    format: str
    width: int
    height: int
    decode_seconds: float
    kernel_seconds: float
    in_shared_memory: bool
    """A service has put them into memory that it shares with us."""


Outcome = Made | CommandError
"""What became of one picture."""


def make_here(
    files: Sequence[Path], profile: VisionProfile, options: DecodeOptions, kernel_name: str | None
) -> Generator[tuple[int, Outcome], None, None]:
    """Makes the patches of each file in this process, one after the other.

    Raises:
        click.UsageError: There is no such kernel here.
    """
    try:
        kernel = kernels.get(kernel_name)
    except ValueError as error:
        raise click.UsageError(f"--kernel: {error}") from None
    threads = len(os.sched_getaffinity(0))

    def make(file: Path) -> Outcome:
        try:
            data = read_bounded(file, MAX_PICTURE_BYTES)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow warns of what our own limit allows, and of odd camera notes
                picture = decode(data, options)
            decoded = time.perf_counter()
            geometry = plan(picture.width, picture.height, profile)
            patches = kernel.resize_patchify(picture.rgb, geometry, profile, threads=threads)
            done = time.perf_counter()
        except CommandError as error:
            return error
        except VisionError as error:
            return CommandError(f"{printable(str(file))}: {error}", reason=error.reason.value, field=error.field)
        except MemoryError:
            return CommandError(f"{printable(str(file))}: not enough memory for this picture")
        return Made(
            patches,
            geometry,
            picture.format,
            picture.width,
            picture.height,
            decoded - started,
            done - decoded,
            in_shared_memory=False,
        )

    return ((index, make(file)) for index, file in enumerate(files))


def make_there(
    files: Sequence[Path],
    profile: str | VisionProfile,
    options: DecodeOptions,
    address: str,
    timeout: float,
    shared_memory_folder: Path | None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Has the patches of the files made by the Preprocess service at `address`, all on one stream; in any order.

    Closing it ends the stream.

    Raises (while iterating):
        CommandError: The service does not answer, or refuses the whole stream.
    """
    sent: list[int] = []
    unread: list[tuple[int, Outcome]] = []

    def sources() -> Iterator[bytes]:
        for index, file in enumerate(files):
            try:
                data = read_bounded(file, MAX_PICTURE_BYTES)
            except CommandError as error:
                unread.append((index, error))
            else:
                sent.append(index)
                yield data

    with (
        calling(),
        PreprocessClient(
            address,
            max_patch_bytes=MAX_OUTPUT_BYTES,
            credentials=connection_credentials(),
            shared_memory_folder=shared_memory_folder,
        ) as client,
        client.preprocess_many(sources(), profile=profile, decode_options=options, timeout=timeout) as results,
    ):
        for result in results:
            index = sent[result.index]
            yield index, _made_there(result, files[index])
    yield from unread


def _made_there(result: ImageResult, file: Path) -> Outcome:
    patches = result.patches
    if patches is None:
        name = printable(str(file))
        if isinstance(result.error, RefusedError):
            return refused(result.error, what=name)
        return CommandError(f"{name}: {result.error}")
    return Made(
        patches.array,
        patches.plan,
        patches.source_format,
        patches.source_width,
        patches.source_height,
        patches.timings.decode,
        patches.timings.kernel,
        patches.in_shared_memory,
    )
