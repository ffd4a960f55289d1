"""Compares the simd kernel with the reference, compiled for the machine that numba's variables name.

    NUMBA_CPU_NAME=... NUMBA_CPU_FEATURES=... python -m vision.other_machine CASES

With INTERLOCK_TEST_MACHINE=other the kernel takes the machine for one whose instructions it does not know.
"""

import os
import sys

import numpy as np
from numba.core.codegen import JITCPUCodegen

from interlock.vision import kernels
from vision.cases import random_case


def compare(cases: int) -> None:
    simd, reference = (kernels.get(name).resize_patchify for name in ("simd", "reference"))
    rng = np.random.default_rng(5)
    for number in range(cases):
        case = random_case(rng)
        assert np.array_equal(simd(*case), reference(*case)), number


if __name__ == "__main__":
    if os.environ.get("INTERLOCK_TEST_MACHINE") == "other":
        JITCPUCodegen.magic_tuple = lambda self: ("aarch64-unknown-linux-gnu", "generic", "")  # type: ignore[method-assign]
    compare(int(sys.argv[1]))
    print(sys.argv[1], "compared")
