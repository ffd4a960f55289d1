"""Patch files: `.npy` of uint16 with shape (grid_height, grid_width, 3, patch_size, patch_size)."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from interlock_cli.errors import CommandError, printable
from interlock_cli.files import cannot, written_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def write_patches(file: Path, patches: "NDArray[np.uint16]") -> None:
    """Writes a patch file, whole or not at all.

    Raises:
        CommandError: It cannot be written.
    """
    from numpy.lib import format as npy

    with written_whole(file) as handle:
        npy.write_array(handle, patches, version=(1, 0), allow_pickle=False)


def read_patches(file: Path) -> "NDArray[np.uint16]":
    """Reads a patch file. Its header is checked against the size of the file before memory is taken.

    Raises:
        CommandError: It cannot be read, or is no patch file.
    """
    import numpy as np
    from numpy.lib import format as npy

    def wrong(message: str) -> CommandError:
        return CommandError(f"{printable(str(file))}: {message}")

    try:
        with file.open("rb") as handle:
            try:
                version = npy.read_magic(handle)
                read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
                shape, fortran_order, dtype = read_header(handle)
            except Exception as error:  # NumPy reads the header as Python code: hostile bytes raise whatever that can
                raise wrong(f"no .npy file: {error!s:.200}") from None
            if dtype != np.uint16 or len(shape) != 5 or shape[2] != 3 or shape[3] != shape[4] or min(shape) < 1:
                raise wrong(
                    f"holds {dtype} of shape {shape}; "
                    "expected uint16 of shape (grid_height, grid_width, 3, patch_size, patch_size)"
                )
            expected = math.prod(shape) * dtype.itemsize
            present = os.fstat(handle.fileno()).st_size - handle.tell()
            if present != expected:
                raise wrong(f"{present} bytes of patches; its header says {expected}")
            words = np.fromfile(handle, dtype, math.prod(shape))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise cannot("read", file, error) from None
    patches = words.reshape(shape, order="F" if fortran_order else "C")
    return np.ascontiguousarray(patches, np.uint16)
