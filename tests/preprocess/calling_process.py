"""A caller that sends pictures for ever and never closes its stream, to be killed in the middle. Argument: address."""

import asyncio
import itertools
import sys

import grpc

from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.callers import begin, part, picture_file, whole


async def main(address: str) -> None:
    file = picture_file(1, 1500, 1500)
    async with grpc.aio.insecure_channel(address) as channel:
        call = PreprocessServiceStub(channel).PreprocessImages()
        await call.write(begin("unfinished", 1000))
        await call.write(part("unfinished", 0, bytes(500)))
        for number in itertools.count():
            for step in whole(f"{number}", file):
                await call.write(step)


asyncio.run(main(sys.argv[1]))
