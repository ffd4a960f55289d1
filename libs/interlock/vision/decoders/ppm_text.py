"""The compiled loop that reads samples written as text."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from interlock.vision.decoders.compiled import compiled

_SIGNATURE = types.int64(
    types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.boolean, types.uint8[::1], types.uint8[::1]
)
_COMMENT, _LINE_FEED, _RETURN = ord("#"), ord("\n"), ord("\r")
_ZERO, _NINE = ord("0"), ord("9")
_SPACE, _TAB = ord(" "), ord("\t")  # from the tab to the return, all are spaces
_MOST_DIGITS = 10


@compiled(_SIGNATURE)
def read_samples(
    text: NDArray[np.uint8], at: int, single: bool, levels: NDArray[np.uint8], samples: NDArray[np.uint8]
) -> int:
    """Read decimal numbers, and look up what they stand for.

    A comment is cut out with the end of its line, as Pillow does it: the number before it goes on behind it.

    Args:
        text: uint8[bytes].
        at: where the samples begin.
        single: whether each digit is a sample, with or without spaces between.
        levels: uint8[greatest sample + 1]: what each stands for.
        samples: uint8[count], filled.

    Returns:
        How many there are; -1: there is something else in the text, or more, or a sample too great.
    """
    done = digits = value = 0
    while at < len(text):
        byte = text[at]
        at += 1
        if _ZERO <= byte <= _NINE:
            value = value * 10 + (byte - _ZERO)
            digits += 1
            if digits > _MOST_DIGITS:
                return -1
            ended = single
        elif byte == _SPACE or _TAB <= byte <= _RETURN:
            ended = digits > 0
        elif byte == _COMMENT:
            while at < len(text) and text[at] != _LINE_FEED and text[at] != _RETURN:
                at += 1
            at += 1
            continue
        else:
            return -1
        if ended:
            if done == len(samples) or value >= len(levels):
                return -1
            samples[done] = levels[value]
            done += 1
            value = digits = 0
    if digits > 0:
        if done == len(samples) or value >= len(levels):
            return -1
        samples[done] = levels[value]
        done += 1
    return done
