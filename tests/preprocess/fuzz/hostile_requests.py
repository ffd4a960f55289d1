"""Requests with any value in any field: sound ones, of which a few fields were then set to what they should not be.

The fields are those of the protos' descriptors, so that a new one is fuzzed from the day it is there.
"""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.vision import DEFAULT_PROFILE_NAME, PROFILES, plan
from preprocess.callers import begin, cancel, end, part
from preprocess.fuzz.campaigns import SEED
from vision.small_pictures import small_pictures

Random = np.random.Generator

_Request = TypeVar("_Request", bound=Message)

WIDTH, HEIGHT = 40, 30
RAW = bytes(range(240)) * (WIDTH * HEIGHT * 3 // 240)
PROFILE = PROFILES[DEFAULT_PROFILE_NAME]
SOUND_PLAN = {name: getattr(plan(WIDTH, HEIGHT, PROFILE), name) for name in pb.Plan.DESCRIPTOR.fields_by_name}

INTEGERS = (0, 1, 2, 3, 13, 14, 15, 28, 40, 63, 127, 128, 255, 256, 1_000, 16_384, 65_535, 2**24, 2**31 - 1, 2**31)
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 255.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
STRINGS = ("", DEFAULT_PROFILE_NAME, "x", "a b", "\0", "\n", "é", "../x", "x" * 128, "x" * 129, "é" * 65, "x" * 5_000)

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_ENUM: (-(2**31), 2**31 - 1),
}


def case(number: int) -> Random:
    """The dice of a case."""
    return np.random.default_rng((SEED, number, 1))


def hostile_image_request(rng: Random) -> pb.PreprocessImageRequest:
    request = pb.PreprocessImageRequest(image_id="a")
    if rng.random() < 0.5:
        request.encoded = _picture(rng)
    else:
        request.raw.CopyFrom(pb.RawRgb(width=WIDTH, height=HEIGHT, data=RAW))
        if rng.random() < 0.3:
            request.plan.CopyFrom(pb.Plan(**SOUND_PLAN))
    return _spoilt(rng, request)


def hostile_plans_request(rng: Random) -> pb.PlanImagesRequest:
    sizes = [pb.ImageSize(width=_integer(rng), height=_integer(rng)) for _ in range(rng.choice([0, 1, 5, 256, 1_025]))]
    return _spoilt(rng, pb.PlanImagesRequest(sizes=sizes, with_token_types=rng.random() < 0.5))


def hostile_region_request(rng: Random) -> Message:
    kinds = (pb.RegisterRegionRequest, pb.UnregisterRegionRequest, pb.ListRegionsRequest, pb.ListProfilesRequest)
    return _spoilt(rng, kinds[rng.integers(0, len(kinds))]())


def hostile_steps(rng: Random) -> Iterator[pb.PreprocessImagesRequest]:
    """Steps of a few pictures, mixed, with some left out, doubled, moved or spoilt."""
    pictures = []
    for image_id in "abcd"[: rng.integers(1, 5)]:
        raw = rng.random() < 0.3
        data = RAW if raw else _picture(rng)
        size = {"kind": pb.SOURCE_KIND_RAW_RGB, "width": WIDTH, "height": HEIGHT} if raw else {}
        cut = int(rng.integers(0, len(data) + 1))
        steps = [begin(image_id, len(data), **size), part(image_id, 0, data[:cut]), part(image_id, cut, data[cut:])]
        steps.append(cancel(image_id) if rng.random() < 0.1 else end(image_id))
        pictures.append(steps)
    order = rng.permutation(np.repeat(np.arange(len(pictures)), [len(steps) for steps in pictures]))
    steps = [pictures[index].pop(0) for index in order]
    for _ in range(rng.choice([0, 1, 1, 2])):
        at = int(rng.integers(0, len(steps)))
        match rng.integers(0, 5):
            case 0:
                del steps[at]
            case 1:
                steps.insert(at, steps[rng.integers(0, len(steps))])
            case 2:
                steps.insert(int(rng.integers(0, len(steps))), steps.pop(at))
            case _:
                steps[at] = _spoilt(rng, steps[at])
        if not steps:
            break
    yield from steps


def _picture(rng: Random) -> bytes:
    pictures = small_pictures()
    return pictures[rng.choice(list(pictures))]


def _spoilt(rng: Random, request: _Request) -> _Request:
    """A copy with up to three fields, at any depth, set anew or cleared."""
    spoilt = type(request)()
    spoilt.CopyFrom(request)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        _spoil(rng, spoilt)
    return spoilt


def _spoil(rng: Random, message: Message) -> None:
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field = fields[rng.integers(0, len(fields))]
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        values = getattr(message, field.name)
        for _ in range(rng.integers(0, 4)):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                _spoil(rng, values.add())
            else:
                values.append(_value(rng, field))
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        for _ in range(rng.integers(0, 4)):
            _spoil(rng, inner)
    else:
        setattr(message, field.name, _value(rng, field))


def _value(rng: Random, field: FieldDescriptor) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return STRINGS[rng.integers(0, len(STRINGS))]
        case FieldDescriptor.TYPE_BYTES:
            return rng.bytes(int(rng.choice([0, 1, 31, 32, 33, len(RAW), 100_000])))
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return FLOATS[rng.integers(0, len(FLOATS))]
        case _:
            return _integer(rng, *_RANGES[field.type])


def _integer(rng: Random, least: int = 0, most: int = 2**32 - 1) -> int:
    if rng.random() < 0.1:
        return most if rng.random() < 0.5 else least
    value = INTEGERS[rng.integers(0, len(INTEGERS))] if rng.random() < 0.7 else int(rng.integers(1, 2_000))
    return min(value, most)
