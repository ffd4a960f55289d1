"""Clients of the service, all in one loop of this process: what a frontend has."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

import grpc

from interlock.client import AsyncPreprocessClient, Patches
from interlock.client._internal.assembly import PatchAssembly
from interlock.client._internal.channels import OPTIONS
from interlock.client._internal.frames import Chunk, read_frame
from interlock.client.preprocess import MAX_PATCH_BYTES
from interlock.preprocess.v1 import preprocess_pb2 as pb

_METHOD = "/interlock.preprocess.v1.PreprocessService/PreprocessImage"


@dataclass
class Taken:
    """How long pictures took, each from the call to the whole array."""

    latencies: list[float]
    """Seconds of each."""
    seconds: float
    """Of all."""

    @property
    def rate(self) -> float:
        """Pictures a second."""
        return len(self.latencies) / self.seconds


@dataclass(frozen=True)
class Way:
    """How clients send pictures and get patches."""

    shared_memory: bool = False
    hash_first: bool = False


TCP = Way()


@asynccontextmanager
async def connected(address: str, count: int, way: Way = TCP) -> AsyncIterator[list[AsyncPreprocessClient]]:
    """So many clients, with a connection each."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                AsyncPreprocessClient(address, shared_memory=way.shared_memory, hash_first=way.hash_first)
            )
            for _ in range(count)
        ]
        await asyncio.gather(*(client.list_profiles() for client in clients))
        yield clients


async def one_call_each(
    clients: Sequence[AsyncPreprocessClient], files: Sequence[bytes], cached: bool = False
) -> Taken:
    """Each client sends a picture, waits for its patches, and takes the next that is left."""
    waiting, latencies = iter(files), []

    async def work(client: AsyncPreprocessClient) -> None:
        for file in waiting:
            begun = perf_counter()
            checked(await client.preprocess(file), cached)
            latencies.append(perf_counter() - begun)

    begun = perf_counter()
    await asyncio.gather(*(work(client) for client in clients))
    return Taken(latencies, perf_counter() - begun)


async def one_stream(client: AsyncPreprocessClient, files: Sequence[bytes], in_flight: int) -> Taken:
    """All on one stream, so many in flight."""
    begun_at, latencies = {}, []

    def sources() -> Iterator[bytes]:
        for index, file in enumerate(files):
            begun_at[index] = perf_counter()
            yield file

    begun = perf_counter()
    async with client.preprocess_many(sources(), max_in_flight=in_flight) as stream:
        async for result in stream:
            checked(result.unwrap())
            latencies.append(perf_counter() - begun_at[result.index])
    return Taken(latencies, perf_counter() - begun)


async def first_chunk(address: str, file: bytes) -> tuple[float, float]:
    """Seconds from the call to the first chunk, and to the whole array, of one picture alone.

    The frames are put together as `AsyncPreprocessClient` does it.
    """
    first = None
    async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
        await channel.channel_ready()
        assembly = PatchAssembly("", MAX_PATCH_BYTES)
        call = channel.unary_stream(_METHOD, pb.PreprocessImageRequest.SerializeToString, read_frame)
        begun = perf_counter()
        async for frame in call(pb.PreprocessImageRequest(encoded=file)):
            if first is None and isinstance(frame, Chunk):
                first = perf_counter() - begun
            assembly.add(frame)
        checked(assembly.patches())
        assert first is not None
        return first, perf_counter() - begun


def checked(patches: Patches, cached: bool = False) -> Patches:
    """The patches, if they were made for this call; or if they were not, where they should not be."""
    if patches.timings.from_cache is not cached:
        raise SystemExit(f"patches {'did not come' if cached else 'came'} from the cache, against what is measured")
    return patches
