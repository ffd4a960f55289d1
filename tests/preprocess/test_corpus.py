"""Every file of the corpus gives over the wire what the reference kernel gives here, or fails for the same reason."""

from pathlib import Path

import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import AlphaHandling, DecodeOptions, ExifOrientation, SixteenBitGrey, VisionError
from preprocess.callers import answers_to, reference_patches, until, whole

FILES = {path.name: path.read_bytes() for path in (Path(__file__).parent.parent / "data" / "corpus").iterdir()}
del FILES["manifest.json"]

REFERENCE_OPTIONS = (pb.DecodeOptions(), DecodeOptions())
BETTER_OPTIONS = (
    pb.DecodeOptions(
        exif_orientation=pb.EXIF_ORIENTATION_APPLY,
        alpha_handling=pb.ALPHA_HANDLING_COMPOSITE,
        sixteen_bit_grey=pb.SIXTEEN_BIT_GREY_HIGH_BYTE,
    ),
    DecodeOptions(
        exif_orientation=ExifOrientation.APPLY,
        alpha_handling=AlphaHandling.COMPOSITE,
        sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE,
    ),
)


@pytest.mark.parametrize(("message", "options"), [REFERENCE_OPTIONS, BETTER_OPTIONS], ids=["reference", "better"])
async def test_all_files_of_the_corpus_on_one_stream(running, message, options):
    steps = [step for name, file in FILES.items() for step in whole(name, file, decode_options=message)]

    answers = await answers_to(running.stub, steps)

    expected = {name: expected_outcome(file, options) for name, file in FILES.items()}
    assert {name: answer.fault if answer.error else answer.patches for name, answer in answers.items()} == expected
    assert len(FILES) == 57
    await until(lambda: running.counters.at_rest)


def expected_outcome(file: bytes, options: DecodeOptions) -> bytes | tuple[str, str]:
    """The patches, or reason and field of the fault."""
    try:
        return reference_patches(file, options=options)
    except VisionError as error:
        return error.reason, "data"
