"""Decode a file twice, as it is done and by Pillow alone, and compare."""

from dataclasses import dataclass
from unittest import mock

import numpy as np

from interlock.reasons import Reason
from interlock.vision import DecodeOptions, VisionError, decode, decoding


@dataclass
class Seen:
    """What came out.

    Attributes:
        rgb: the pixels; None: the file was refused.
        without_pillow: whether another decoder gave them.
    """

    rgb: np.ndarray | None
    without_pillow: bool


def as_pillow_does(data: bytes, options: DecodeOptions | None = None) -> Seen:
    """Assert that pixels, or reason and words of the refusal, are those of Pillow alone."""
    rule, taken = decoding._rgb_without_pillow, []

    def watched(*arguments):
        rgb = rule(*arguments)
        taken.append(rgb is not None)
        return rgb

    with mock.patch.object(decoding, "_rgb_without_pillow", watched):
        ours = _outcome(data, options)
    with mock.patch.object(decoding, "_rgb_without_pillow", return_value=None):
        pillows = _outcome(data, options)
    assert isinstance(ours, np.ndarray) == isinstance(pillows, np.ndarray), (ours, pillows)
    if isinstance(ours, np.ndarray):
        assert ours.flags.c_contiguous
        assert np.array_equal(ours, pillows)
        return Seen(ours, any(taken))
    assert ours == pillows
    return Seen(None, False)


def _outcome(data: bytes, options: DecodeOptions | None) -> np.ndarray | tuple[Reason, str]:
    try:
        return decode(data, options).rgb
    except VisionError as refused:
        return refused.reason, f"{refused.field}: {refused}"
