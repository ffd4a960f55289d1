"""Clients of the Preprocess service: pictures to bf16 patches.

    with PreprocessClient("localhost:50052") as client:
        patches = client.preprocess("photo.jpg")
        for result in client.preprocess_many(["a.png", "b.png", "c.png"]):
            print(result.index, result.error or result.patches.array.shape)

Planning needs nothing but the bare install; patches need `pip install 'interlock[patches]'`.
"""

import asyncio
import time
from collections.abc import AsyncIterable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import grpc

from interlock.client._internal.assembly import PatchAssembly, require_packages
from interlock.client._internal.conversation import Conversation
from interlock.client._internal.faces import AsyncFace, Rpc, SyncFace
from interlock.client._internal.picture_messages import (
    image_request,
    plan_request,
    planned_images,
    served_profiles,
)
from interlock.client._internal.pipeline import AsyncPatchStream, PatchStream
from interlock.client._internal.retry import DEFAULT_RETRY, Attempts, RetryPolicy
from interlock.client._internal.sources import upload_of
from interlock.client._internal.statuses import as_image_failed, error_of, raise_if_closed
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

_PICTURE_TIMEOUT = 60.0

_ONE_MESSAGE_BYTES = 3 * 1024 * 1024
"""Larger sources go in parts, which any server takes in, whatever bound on messages it has."""


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
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
        max_patch_bytes: int = MAX_PATCH_BYTES,
    ) -> None:
        super().__init__(address, timeout=timeout, retry=retry, credentials=credentials)
        self._max_patch_bytes = max_patch_bytes
        self._stub = preprocess_service_pb2_grpc.PreprocessServiceStub(self._channel)

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
        upload = upload_of(source)
        if len(upload.data) > _ONE_MESSAGE_BYTES:
            with self.preprocess_many([picture], timeout=timeout) as stream:
                return next(iter(stream)).unwrap()
        request = image_request(picture, upload)
        attempts = Attempts(self._retry, timeout)
        while True:
            assembly = PatchAssembly(image_id, self._max_patch_bytes)
            call = self._stub.PreprocessImage(request, timeout=attempts.time_left())
            try:
                for frame in call:
                    assembly.add(frame)
                return assembly.patches()
            except grpc.RpcError as error:
                pause = attempts.pause_after(as_image_failed(error_of(error, self.address)))
            finally:
                call.cancel()
            time.sleep(pause)

    def preprocess_many(
        self,
        sources: Iterable[Source | Picture],
        *,
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        max_in_flight: int = MAX_IN_FLIGHT,
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
        return PatchStream(
            self._stub.PreprocessImages,
            self.address,
            sources,
            Picture(b"", profile=profile, decode_options=decode_options),
            Conversation(max_in_flight, self._max_patch_bytes, self._retry),
            self._retry,
            timeout,
        )


class AsyncPreprocessClient(AsyncFace):
    """Asynchronous client of the Preprocess service, for one event loop.

    Args:
        address: host:port of the service.
        timeout: seconds for a call that is given none of its own.
        retry: how often a call that found no server is made.
        credentials: token and certificates; none: plain text, for a server that lets everyone in.
        max_patch_bytes: most bytes that the patches of one picture may take; a larger announcement is refused before
            memory is set aside.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 10.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        credentials: Credentials = NO_CREDENTIALS,
        max_patch_bytes: int = MAX_PATCH_BYTES,
    ) -> None:
        super().__init__(address, timeout=timeout, retry=retry, credentials=credentials)
        self._max_patch_bytes = max_patch_bytes

    @cached_property
    def _stub(self) -> "preprocess_service_pb2_grpc.PreprocessServiceAsyncStub":
        return preprocess_service_pb2_grpc.PreprocessServiceStub(self._channel)

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
        upload = await asyncio.to_thread(upload_of, source)
        if len(upload.data) > _ONE_MESSAGE_BYTES:
            async with self.preprocess_many([picture], timeout=timeout) as stream:
                return (await anext(aiter(stream))).unwrap()
        request = image_request(picture, upload)
        attempts = Attempts(self._retry, timeout)
        while True:
            assembly = PatchAssembly(image_id, self._max_patch_bytes)
            call = self._stub.PreprocessImage(request, timeout=attempts.time_left())
            try:
                async for frame in call:
                    assembly.add(frame)
                return assembly.patches()
            except grpc.RpcError as error:
                pause = attempts.pause_after(as_image_failed(error_of(error, self.address)))
            except asyncio.CancelledError:
                raise_if_closed(self.address)
                raise
            finally:
                call.cancel()
            await asyncio.sleep(pause)

    def preprocess_many(
        self,
        sources: Iterable[Source | Picture] | AsyncIterable[Source | Picture],
        *,
        profile: str | VisionProfile | None = None,
        decode_options: "DecodeOptions | None" = None,
        max_in_flight: int = MAX_IN_FLIGHT,
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
        return AsyncPatchStream(
            self._stub.PreprocessImages,
            self.address,
            sources,
            Picture(b"", profile=profile, decode_options=decode_options),
            Conversation(max_in_flight, self._max_patch_bytes, self._retry),
            self._retry,
            timeout,
        )
