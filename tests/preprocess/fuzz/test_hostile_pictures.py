"""Thousands of damaged pictures of every format: each has patches or a reasoned error, and the server is as before."""

import asyncio

from interlock.preprocess.v1 import preprocess_pb2 as pb
from preprocess.callers import answers_to, whole
from preprocess.fuzz.campaigns import COUNT, FIRST, KEPT, OF_PICTURES, answer_of_one, check_answer, hostile_picture
from preprocess.test_crowd import settled_bytes

BATCH = 50


async def batch_on_a_stream(stub, numbers: range) -> int:
    steps = []
    for number in numbers:
        data, options = hostile_picture(number)
        steps += whole(f"{number}", data, part_bytes=4_000, decode_options=options)
    answers = await answers_to(stub, steps)
    assert answers.keys() == {f"{number}" for number in numbers}
    return sum(check_answer(answer, OF_PICTURES) for answer in answers.values())


async def batch_in_messages(stub, numbers: range) -> int:
    with_patches = 0
    for number in numbers:
        data, options = hostile_picture(number)
        request = pb.PreprocessImageRequest(encoded=data, decode_options=options)
        answer = await answer_of_one(stub.PreprocessImage(request, timeout=60))
        with_patches += check_answer(answer, OF_PICTURES)
    return with_patches


async def test_damaged_pictures_have_patches_or_a_reasoned_error_and_leave_nothing_behind(target):
    async def fire(first: int, count: int) -> int:
        batches = iter([range(at, min(at + BATCH, first + count)) for at in range(first, first + count, BATCH)])
        with_patches = 0

        async def one_caller(stub) -> None:
            nonlocal with_patches
            for numbers in batches:
                send = batch_in_messages if numbers.start // BATCH % 5 == 4 else batch_on_a_stream
                served = await send(stub, numbers)
                with_patches += served

        await asyncio.gather(*(one_caller(stub) for stub in target.stubs))
        return with_patches

    warm_up = COUNT // 4
    with_patches = await fire(FIRST, warm_up)
    before = await settled_bytes(target.process_id)
    with_patches += await fire(FIRST + warm_up, COUNT - warm_up)
    assert await settled_bytes(target.process_id) <= before + KEPT
    assert COUNT // 10 < with_patches < COUNT
