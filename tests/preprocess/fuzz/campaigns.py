"""How long is fuzzed, and what counts as an answer.

Each case is made from a seed and its own number, so that one can be had again alone: `hostile_picture(1234)`. The tests
run the cases from INTERLOCK_FUZZ_FROM (0), as many as INTERLOCK_FUZZ_COUNT (2,000); `make fuzz` runs 20,000.
"""

import os

import grpc
import numpy as np

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason
from preprocess.callers import Answer, status_of
from preprocess.test_crowd import MARGIN, MIB
from vision.mutations import mutated
from vision.small_pictures import small_pictures

SEED = 4_019
FIRST = int(os.environ.get("INTERLOCK_FUZZ_FROM", "0"))
COUNT = int(os.environ.get("INTERLOCK_FUZZ_COUNT", "2000"))

KEPT = MARGIN + 48 * MIB
"""What a server may keep that it did not have after a quarter: also what its kernel keeps of hundreds of odd sizes."""

OF_PICTURES = frozenset(
    {
        Reason.IMAGE_EMPTY,
        Reason.IMAGE_UNRECOGNIZED,
        Reason.IMAGE_TRUNCATED,
        Reason.IMAGE_DAMAGED,
        Reason.IMAGE_TOO_MANY_PIXELS,
        Reason.NO_LEGAL_PLAN,
        Reason.SOURCE_TOO_LARGE,  # decoding it would take more memory than there is for all
    }
)
"""Why a picture may be refused whose request is sound."""


def hostile_picture(number: int) -> tuple[bytes, pb.DecodeOptions]:
    """A damaged picture, and how it is to be decoded."""
    rng = np.random.default_rng((SEED, number))
    pictures = small_pictures()
    name, other = rng.choice(list(pictures), 2)
    options = pb.DecodeOptions(
        exif_orientation=int(rng.integers(0, 3)),
        alpha_handling=int(rng.integers(0, 3)),
        sixteen_bit_grey=int(rng.integers(0, 3)),
    )
    return mutated(rng, pictures[name], pictures[other]), options


def check_answer(answer: Answer, reasons: frozenset[Reason]) -> bool:
    """Whether there are patches; asserts that there is a reasoned error if not."""
    assert answer.ended
    if answer.error is None:
        return True
    assert answer.error.reason in reasons, answer.error
    assert answer.error.code == Reason(answer.error.reason).code
    assert answer.error.message
    return False


def check_status(error: grpc.aio.AioRpcError, reasons: frozenset[Reason]) -> None:
    """Assert that a call was refused for one of these reasons, and in words."""
    status = status_of(error)
    assert status.reason in reasons, error
    assert status.code == Reason(status.reason).code
    assert error.details()


async def answer_of_one(call: grpc.aio.UnaryStreamCall) -> Answer:
    """The answer to `PreprocessImage`; its status as if it were an error frame."""
    answer = Answer()
    try:
        async for frame in call:
            answer.take(frame)
    except grpc.aio.AioRpcError as error:
        status = status_of(error)
        answer.error = pb.ImageError(code=status.code, reason=status.reason, message=error.details())
    return answer
