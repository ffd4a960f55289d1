"""Clients of the Preprocess service: pictures to bf16 patches.

    with PreprocessClient("localhost:50052") as client:
        patches = client.preprocess("photo.jpg")
        for result in client.preprocess_many(["a.png", "b.png", "c.png"]):
            print(result.index, result.error or result.patches.array.shape)

Planning needs nothing but the bare install; patches need `pip install 'interlock[patches]'`.

Where the service shares memory (see docs/shared-memory.md), patches are put into memory of this process by the server
itself; else they come in chunks. The arrays are the same.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

import grpc

from interlock.client._internal.assembly import require_packages
from interlock.client._internal.conversation import Conversation
from interlock.client._internal.faces import AsyncFace, Rpc, SyncFace
from interlock.client._internal.frames import Frame, Step, read_frame, write_step
from interlock.client._internal.hashes import HashFirst, HashFirstPolicy
from interlock.client._internal.one_picture import OnePicture
from interlock.client._internal.picture_messages import (
    plan_request,
    planned_images,
    served_profiles,
)
from interlock.client._internal.pipeline import AsyncPatchStream, PatchStream
from interlock.client._internal.ready_pictures import Item, ready, ready_or_unreadable
from interlock.client._internal.regions import SharedMemory, SharedMemoryMode
from interlock.client._internal.retry import DEFAULT_RETRY, Attempts, RetryPolicy
from interlock.client._internal.statuses import error_of, raise_if_closed
from interlock.client.credentials import NO_CREDENTIALS, Credentials
from interlock.client.pictures import Patches, Picture, PlannedImage, ServedProfiles, Source
from interlock.preprocess.v1 import preprocess_pb2, preprocess_service_pb2_grpc
from interlock.vision.plan import Plan
from interlock.vision.profiles import VisionProfile

if TYPE_CHECKING:
    from interlock.vision import DecodeOptions

MAX_PATCH_BYTES = 64 * 1024 * 1024
"""Default of `max_patch_bytes`: six times the largest picture of the default profile."""

MAX_IN_FLIGHT = 8
"""Default of `max_in_flight`."""

SHARED_MEMORY_BYTES = 128 * 1024 * 1024
"""Default of `shared_memory_bytes`: a dozen of the largest pictures of the default profile."""

_PICTURE_TIMEOUT = 60.0
_SHARE_TIMEOUT = 2.0
_FAREWELL_TIMEOUT = 1.0

_ONE = "/interlock.preprocess.v1.PreprocessService/PreprocessImage"
_MANY = "/interlock.preprocess.v1.PreprocessService/PreprocessImages"


def _plan_rpc(
    sizes: Iterable[tuple[int, int]], profile: str | VisionProfile | None, token_types: bool
) -> Rpc[preprocess_pb2.PlanImagesRequest, preprocess_pb2.PlanImagesResponse, list[PlannedImage]]:
    request = plan_request(sizes, profile, token_types)
    return Rpc(request, lambda response: planned_images(request, response))


def _profiles_rpc() -> Rpc[preprocess_pb2.ListProfilesRequest, preprocess_pb2.ListProfilesResponse, ServedProfiles]:
    return Rpc(preprocess_pb2.ListProfilesRequest(), served_profiles)


class PreprocessClient(SyncFace):
    """Synchronous client of the Preprocess service. May be used from many threads.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates; none: plain text, for a server that lets everyone in.
        max_patch_bytes: most bytes that the patches of one picture may take; a larger announcement is refused before
            memory is set aside.
        shared_memory: "auto": patches are put into memory that is shared with the server, where that can be done, and
            come in chunks else. True: it is an error where it cannot be done. False: always in chunks.
        shared_memory_folder: the server's shared-memory folder, as this side sees it. None: what the environment says
            (INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER), or /dev/shm/interlock.
        shared_memory_bytes: size of this client's file there; bounds the pictures that lie in it at once. Others come
            in chunks. Takes memory only where patches were put.
        hash_first: whether pictures are begun by their hash, and sent only if the server does not have them in its
            cache. "auto": those that this client has sent before. True: all. False: none.

    Raises:
        SharedMemoryError: shared memory is asked for, and this system has none.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
        max_patch_bytes: int = MAX_PATCH_BYTES,
        shared_memory: SharedMemoryMode = "auto",
        shared_memory_folder: "str | os.PathLike[str] | None" = None,
        shared_memory_bytes: int = SHARED_MEMORY_BYTES,
        hash_first: HashFirst = "auto",
    ) -> None:
        super().__init__(address, timeout=timeout, retry=retry, credentials=credentials)
        self._max_patch_bytes = max_patch_bytes
        self._memory = SharedMemory(shared_memory, shared_memory_folder, shared_memory_bytes)
        self._hash_first = HashFirstPolicy(hash_first)
        self._stub = preprocess_service_pb2_grpc.PreprocessServiceStub(self._channel)
        self._one: grpc.UnaryStreamMultiCallable[preprocess_pb2.PreprocessImageRequest, Frame] = (
            self._channel.unary_stream(_ONE, preprocess_pb2.PreprocessImageRequest.SerializeToString, read_frame)
        )
        self._many: grpc.StreamStreamMultiCallable[Step, Frame] = self._channel.stream_stream(
            _MANY, write_step, read_frame
        )

    def close(self) -> None:
        """Close the connection; calls and streams that are still open end with an error. Arrays stay as they are."""
        self._memory.close()
        if not sys.is_finalizing():
            self._say_farewells()
        super().close()

    def plan_images(
        self,
        sizes: Iterable[tuple[int, int]],
        *,
        profile: str | VisionProfile | None = None,
        token_types: bool = False,
        timeout: float | None = None,
    ) -> list[PlannedImage]:
        """Plans of picture sizes, in their order; no pixels are needed.

        Args:
            sizes: width and height of each picture, in pixels; at most 1,024, with token types 256.
            profile: a name, or a profile in full. None: the server's default.
            token_types: also give the type of each token.
            timeout: seconds. None: that of the client.

        Raises:
            RefusedError: unknown or invalid profile, too many sizes. A size without a legal plan is an entry with an
                error instead.
        """
        return self._call(self._stub.PlanImages, _plan_rpc(sizes, profile, token_types), timeout)

    def list_profiles(self, *, timeout: float | None = None) -> ServedProfiles:
        """The profiles that the server has, its kernels and its limits."""
        return self._call(self._stub.ListProfiles, _profiles_rpc(), timeout)

    def preprocess(
        self,
        source: Source,
        *,
        image_id: str = "",
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        plan: Plan | None = None,
        timeout: float = _PICTURE_TIMEOUT,
    ) -> Patches:
        """The patches of one picture.

        Args:
            source: bytes of a file, a path, `RawRgb`, or an array (height, width, 3) of uint8.
            image_id: label for the server's log and the result; at most 128 bytes.
            profile: a name, or a profile in full. None: the server's default.
            decode_options: how to decode a file. None: as the model's reference does.
            plan: geometry to use. None: the one that the profile gives.
            timeout: seconds, waiting for a busy server included.

        Raises:
            ImageFailedError: the server refused the picture; `reason` says why.
            PatchesDamagedError: the patches came incomplete or changed.
            SourceError: the source cannot be read.
            MissingPackageError: NumPy or google-crc32c is missing.
            UnreachableError, DeadlineError: no answer.
        """
        require_packages()
        picture = Picture(source, image_id, profile, decode_options, plan)
        attempts = Attempts(self._retry, timeout)
        prepared = ready(picture, picture, self._hash_first)
        one = OnePicture(picture, prepared, self._max_patch_bytes, self._memory)
        while one.request is not None:
            self._share_memory()
            assembly = one.assembly()
            call = self._one(one.request, timeout=attempts.time_left())
            try:
                for frame in call:
                    assembly.add(frame)
                return assembly.patches()
            except grpc.RpcError as error:
                pause = one.pause_after(error_of(error, self.address), assembly, attempts)
            finally:
                call.cancel()
                assembly.lost()
            time.sleep(pause)
        with self._stream([prepared], picture, 1, max(attempts.time_left() or 0.0, 1e-3)) as stream:
            return next(iter(stream)).unwrap()

    def preprocess_many(
        self,
        sources: Iterable[Source | Picture],
        *,
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        picture_timeout: float | None = None,
        timeout: float | None = None,
    ) -> PatchStream:
        """The patches of many pictures, pipelined on one stream; results come as they end, in any order.

        A picture that fails is a result with an error, and the others go on. Where the connection is lost, the
        pictures without a result are sent again.

        Args:
            sources: pictures, drawn as there is room for them; a `Picture` carries its own label and options.
            profile: for pictures that have none of their own. None: the server's default.
            decode_options: for pictures that have none of their own. None: as the model's reference does.
            max_in_flight: pictures between their source and the taking of their result, at the most; bounds memory.
            picture_timeout: seconds for each picture that has no timeout of its own, from when it is first sent. None:
                no bound.
            timeout: seconds for the whole stream. None: no bound.

        Raises (while iterating):
            UnreachableError, DeadlineError, RefusedError: the whole stream failed.

        Example:
            with client.preprocess_many(paths) as stream:
                for result in stream:
                    if result.error is not None:
                        print(paths[result.index], result.error)
        """
        require_packages()
        defaults = Picture(b"", profile=profile, decode_options=decode_options, timeout=picture_timeout)
        return self._stream(sources, defaults, max_in_flight, timeout)

    def _stream(
        self, sources: Iterable[Item], defaults: Picture, max_in_flight: int, timeout: float | None
    ) -> PatchStream:
        return PatchStream(
            self._many,
            self.address,
            sources,
            partial(ready_or_unreadable, defaults=defaults, hash_first=self._hash_first),
            self._share_memory,
            Conversation(max_in_flight, self._max_patch_bytes, self._memory, self._retry),
            self._retry,
            timeout,
        )

    def _share_memory(self) -> None:
        """Sees to it that memory is shared with the server, if that is to be and can be.

        Raises:
            SharedMemoryError: it has to be, and cannot be.
        """
        self._say_farewells()
        if (region := self._memory.offer()) is None:
            return
        try:
            response = self._stub.RegisterRegion(region.request(), timeout=_SHARE_TIMEOUT)
        except grpc.RpcError as error:
            self._memory.failed(region, error_of(error, self.address))
        except BaseException as error:
            self._memory.failed(region, error)
            raise
        else:
            self._memory.opened(region, response)

    def _say_farewells(self) -> None:
        for request in self._memory.farewells():
            with suppress(grpc.RpcError):  # then it goes when its time is over
                self._stub.UnregisterRegion(request, timeout=_FAREWELL_TIMEOUT)


class AsyncPreprocessClient(AsyncFace):
    """Asynchronous client of the Preprocess service, for one event loop.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates; none: plain text, for a server that lets everyone in.
        max_patch_bytes: most bytes that the patches of one picture may take; a larger announcement is refused before
            memory is set aside.
        shared_memory: "auto": patches are put into memory that is shared with the server, where that can be done, and
            come in chunks else. True: it is an error where it cannot be done. False: always in chunks.
        shared_memory_folder: the server's shared-memory folder, as this side sees it. None: what the environment says
            (INTERLOCK_PREPROCESS_SHARED_MEMORY_FOLDER), or /dev/shm/interlock.
        shared_memory_bytes: size of this client's file there; bounds the pictures that lie in it at once. Others come
            in chunks. Takes memory only where patches were put.
        hash_first: whether pictures are begun by their hash, and sent only if the server does not have them in its
            cache. "auto": those that this client has sent before. True: all. False: none.

    Raises:
        SharedMemoryError: shared memory is asked for, and this system has none.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
        max_patch_bytes: int = MAX_PATCH_BYTES,
        shared_memory: SharedMemoryMode = "auto",
        shared_memory_folder: "str | os.PathLike[str] | None" = None,
        shared_memory_bytes: int = SHARED_MEMORY_BYTES,
        hash_first: HashFirst = "auto",
    ) -> None:
        super().__init__(address, timeout=timeout, retry=retry, credentials=credentials)
        self._max_patch_bytes = max_patch_bytes
        self._memory = SharedMemory(shared_memory, shared_memory_folder, shared_memory_bytes)
        self._hash_first = HashFirstPolicy(hash_first)

    @cached_property
    def _stub(self) -> "preprocess_service_pb2_grpc.PreprocessServiceAsyncStub":
        return preprocess_service_pb2_grpc.PreprocessServiceStub(self._channel)

    @cached_property
    def _one(self) -> "grpc.aio.UnaryStreamMultiCallable[preprocess_pb2.PreprocessImageRequest, Frame]":
        one: grpc.aio.UnaryStreamMultiCallable[preprocess_pb2.PreprocessImageRequest, Frame] = (
            self._channel.unary_stream(_ONE, preprocess_pb2.PreprocessImageRequest.SerializeToString, read_frame)
        )
        return one

    @cached_property
    def _many(self) -> "grpc.aio.StreamStreamMultiCallable[Step, Frame]":
        many: grpc.aio.StreamStreamMultiCallable[Step, Frame] = self._channel.stream_stream(
            _MANY, write_step, read_frame
        )
        return many

    async def close(self) -> None:
        """Close the connection; calls and streams that are still open end with an error. Arrays stay as they are."""
        self._memory.close()
        await self._say_farewells()
        await super().close()

    async def plan_images(
        self,
        sizes: Iterable[tuple[int, int]],
        *,
        profile: str | VisionProfile | None = None,
        token_types: bool = False,
        timeout: float | None = None,
    ) -> list[PlannedImage]:
        """Plans of picture sizes, in their order; no pixels are needed.

        Args:
            sizes: width and height of each picture, in pixels; at most 1,024, with token types 256.
            profile: a name, or a profile in full. None: the server's default.
            token_types: also give the type of each token.
            timeout: seconds. None: that of the client.

        Raises:
            RefusedError: unknown or invalid profile, too many sizes. A size without a legal plan is an entry with an
                error instead.
        """
        return await self._call(self._stub.PlanImages, _plan_rpc(sizes, profile, token_types), timeout)

    async def list_profiles(self, *, timeout: float | None = None) -> ServedProfiles:
        """The profiles that the server has, its kernels and its limits."""
        return await self._call(self._stub.ListProfiles, _profiles_rpc(), timeout)

    async def preprocess(
        self,
        source: Source,
        *,
        image_id: str = "",
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        plan: Plan | None = None,
        timeout: float = _PICTURE_TIMEOUT,
    ) -> Patches:
        """The patches of one picture.

        Args:
            source: bytes of a file, a path, `RawRgb`, or an array (height, width, 3) of uint8.
            image_id: label for the server's log and the result; at most 128 bytes.
            profile: a name, or a profile in full. None: the server's default.
            decode_options: how to decode a file. None: as the model's reference does.
            plan: geometry to use. None: the one that the profile gives.
            timeout: seconds, waiting for a busy server included.

        Raises:
            ImageFailedError: the server refused the picture; `reason` says why.
            PatchesDamagedError: the patches came incomplete or changed.
            SourceError: the source cannot be read.
            MissingPackageError: NumPy or google-crc32c is missing.
            UnreachableError, DeadlineError: no answer.
        """
        require_packages()
        picture = Picture(source, image_id, profile, decode_options, plan)
        attempts = Attempts(self._retry, timeout)
        prepared = await asyncio.to_thread(ready, picture, picture, self._hash_first)
        one = OnePicture(picture, prepared, self._max_patch_bytes, self._memory)
        while one.request is not None:
            await self._share_memory()
            assembly = one.assembly()
            call = self._one(one.request, timeout=attempts.time_left())
            try:
                async for frame in call:
                    assembly.add(frame)
                return assembly.patches()
            except grpc.RpcError as error:
                pause = one.pause_after(error_of(error, self.address), assembly, attempts)
            except asyncio.CancelledError:
                raise_if_closed(self.address)
                raise
            finally:
                call.cancel()
                assembly.lost()
            await asyncio.sleep(pause)
        async with self._stream([prepared], picture, 1, max(attempts.time_left() or 0.0, 1e-3)) as stream:
            return (await anext(aiter(stream))).unwrap()

    def preprocess_many(
        self,
        sources: Iterable[Source | Picture] | AsyncIterable[Source | Picture],
        *,
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        picture_timeout: float | None = None,
        timeout: float | None = None,
    ) -> AsyncPatchStream:
        """The patches of many pictures, pipelined on one stream; results come as they end, in any order.

        A picture that fails is a result with an error, and the others go on. Where the connection is lost, the
        pictures without a result are sent again.

        Args:
            sources: pictures, drawn as there is room for them; a `Picture` carries its own label and options.
            profile: for pictures that have none of their own. None: the server's default.
            decode_options: for pictures that have none of their own. None: as the model's reference does.
            max_in_flight: pictures between their source and the taking of their result, at the most; bounds memory.
            picture_timeout: seconds for each picture that has no timeout of its own, from when it is first sent. None:
                no bound.
            timeout: seconds for the whole stream. None: no bound.

        Raises (while iterating):
            UnreachableError, DeadlineError, RefusedError: the whole stream failed.

        Example:
            async with client.preprocess_many(paths) as stream:
                async for result in stream:
                    if result.error is not None:
                        print(paths[result.index], result.error)
        """
        require_packages()
        defaults = Picture(b"", profile=profile, decode_options=decode_options, timeout=picture_timeout)
        return self._stream(sources, defaults, max_in_flight, timeout)

    def _stream(
        self,
        sources: Iterable[Item] | AsyncIterable[Item],
        defaults: Picture,
        max_in_flight: int,
        timeout: float | None,
    ) -> AsyncPatchStream:
        return AsyncPatchStream(
            self._many,
            self.address,
            sources,
            partial(ready_or_unreadable, defaults=defaults, hash_first=self._hash_first),
            self._share_memory,
            Conversation(max_in_flight, self._max_patch_bytes, self._memory, self._retry),
            self._retry,
            timeout,
        )

    async def _share_memory(self) -> None:
        """As that of `PreprocessClient`."""
        await self._say_farewells()
        if (region := self._memory.offer()) is None:
            return
        try:
            response = await self._stub.RegisterRegion(region.request(), timeout=_SHARE_TIMEOUT)
        except grpc.RpcError as error:
            self._memory.failed(region, error_of(error, self.address))
        except BaseException as error:
            self._memory.failed(region, error)
            raise
        else:
            self._memory.opened(region, response)

    async def _say_farewells(self) -> None:
        for request in self._memory.farewells():
            with suppress(grpc.RpcError):
                await self._stub.UnregisterRegion(request, timeout=_FAREWELL_TIMEOUT)
