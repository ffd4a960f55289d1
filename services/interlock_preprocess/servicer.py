"""`PreprocessServicer`: each method decodes its request, has the work done, and encodes the answer."""

import asyncio
from collections.abc import AsyncIterable

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceServicer
from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.serving.calls import Context
from interlock.vision import DEFAULT_PROFILE_NAME, MAX_PIXELS, PROFILES, VisionError, kernels, plan, token_types
from interlock_preprocess.admission import Source
from interlock_preprocess.callers import call_deadline, caller_scope
from interlock_preprocess.counters import Counters
from interlock_preprocess.delivery import deliver
from interlock_preprocess.destinations import destination_of
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.region_messages import duration, list_regions, seconds
from interlock_preprocess.regions import Regions
from interlock_preprocess.requests import PictureRequest, plan_message, profile_message, read_image, read_profile
from interlock_preprocess.settings import MIB, PreprocessSettings
from interlock_preprocess.sharing import SharedPictures
from interlock_preprocess.stream import ImageStream
from interlock_preprocess.subscription import Subscription
from interlock_preprocess.turns import Party
from interlock_preprocess.writer import FrameWriter

_MAX_SIZES = 1024
_MAX_SIZES_WITH_TOKEN_TYPES = 256
_MAX_TOKEN_TYPES = 5 * MIB // 2  # a byte each, so that the answer stays under 3 MiB


class PreprocessServicer(PreprocessServiceServicer):
    """The Preprocess service.

    Args:
        settings: its limits.
        kernel: name of the one in use.
        pictures: where patches come from.
        regions: shared memory.
        counters: where it counts.
        draining: set when the server is about to stop.
    """

    def __init__(
        self,
        settings: PreprocessSettings,
        kernel: str,
        pictures: SharedPictures,
        regions: Regions,
        counters: Counters,
        draining: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._kernel = kernel
        self._pictures = pictures
        self._regions = regions
        self._counters = counters
        self._draining = draining

    async def PlanImages(self, request: pb.PlanImagesRequest, context: Context) -> pb.PlanImagesResponse:
        """Plans of sizes."""
        limit = _MAX_SIZES_WITH_TOKEN_TYPES if request.with_token_types else _MAX_SIZES
        if len(request.sizes) > limit:
            raise _invalid("sizes", f"{len(request.sizes)} sizes; at most {limit} in one call")
        try:
            profile = read_profile(request.profile)
        except ImageFault as fault:
            raise fault.refusal() from None
        response = pb.PlanImagesResponse()
        tokens = 0
        for index, size in enumerate(request.sizes):
            try:
                planned = plan(size.width, size.height, profile)
            except VisionError as error:
                response.results.add(error=ImageFault(error.reason, str(error), f"sizes[{index}]").image_error())
                continue
            result = response.results.add(plan=plan_message(planned))
            if request.with_token_types:
                tokens += planned.token_count
                if tokens > _MAX_TOKEN_TYPES:
                    raise _invalid(
                        "with_token_types",
                        f"over {_MAX_TOKEN_TYPES} token types up to size {index}; ask for fewer sizes in one call",
                    )
                result.token_types = token_types(planned)
        return response

    # The streaming methods write to the context themselves, which the stub's types do not know of.

    async def PreprocessImage(  # type: ignore[override]
        self, request: pb.PreprocessImageRequest, context: Context
    ) -> None:
        """One picture in one message."""
        self._counters.calls_open += 1
        try:
            await self._answer_one(request, context)
            self._counters.images_served += 1
        except ImageFault as fault:
            self._counters.images_failed[fault.reason] += 1
            raise fault.with_traceback(None).refusal() from None  # whose frames hold the picture
        finally:
            self._counters.calls_open -= 1

    async def _answer_one(self, request: pb.PreprocessImageRequest, context: Context) -> None:
        picture, data = read_image(request)
        scope, deadline, party = caller_scope(context), call_deadline(context), Party(places=1)
        if picture.region is not None:
            self._regions.check(picture.region, scope)
        subscription = self._subscribe(picture, data, scope, party)
        write = FrameWriter(context.write, self._settings.stall_timeout_seconds).write
        try:
            if deadline is not None:
                subscription.fail_at(deadline)
            destination = destination_of(picture, request.image_id, self._regions, scope, write)
            await deliver(subscription, request.image_id, destination, write, write)
        finally:
            subscription.let_go()

    def _subscribe(self, picture: PictureRequest, data: bytes, scope: str, party: Party) -> Subscription:
        """Its patches, from wherever they come: by its hash alone, or from its bytes."""
        if picture.source_sha256 is not None:
            key = self._pictures.key(picture, picture.source_sha256, scope)
            if (found := self._pictures.find(key, scope, picture, party)) is not None:
                return found
            # No fault of the picture: it is not counted as failed.
            raise Refusal(Reason.SOURCE_NEEDED, "the picture is not in the cache; send it")
        self._pictures.check_room(party)
        source = Source(self._counters.sources, len(data), data, retry_delay=self._pictures.retry_delay)
        try:
            key = self._pictures.key(picture, source.sha256, scope)
            return self._pictures.subscribe(key, scope, picture, source, party)
        except BaseException:
            source.drop()
            raise

    async def PreprocessImages(  # type: ignore[override]
        self, request_iterator: AsyncIterable[pb.PreprocessImagesRequest], context: Context
    ) -> None:
        """Many pictures on one stream."""
        stream = ImageStream(self._settings, self._pictures, self._regions, self._counters, self._draining, context)
        await stream.serve(request_iterator)

    async def RegisterRegion(self, request: pb.RegisterRegionRequest, context: Context) -> pb.RegisterRegionResponse:
        """A file of the shared-memory folder, from now on to be named by its handle."""
        ttl = seconds(request.ttl) if request.HasField("ttl") else None
        try:
            region = self._regions.register(request.file_name, request.size, ttl, caller_scope(context))
        except ImageFault as fault:
            raise fault.refusal() from None
        return pb.RegisterRegionResponse(handle=region.handle, ttl=duration(region.ttl))

    async def UnregisterRegion(
        self, request: pb.UnregisterRegionRequest, context: Context
    ) -> pb.UnregisterRegionResponse:
        """One region less."""
        try:
            removed = self._regions.unregister(request.handle, caller_scope(context))
        except ImageFault as fault:
            raise fault.refusal() from None
        return pb.UnregisterRegionResponse(removed=removed)

    async def ListRegions(self, request: pb.ListRegionsRequest, context: Context) -> pb.ListRegionsResponse:
        """The caller's regions."""
        try:
            return list_regions(self._regions, request, caller_scope(context))
        except ImageFault as fault:
            raise fault.refusal() from None

    async def ListProfiles(self, request: pb.ListProfilesRequest, context: Context) -> pb.ListProfilesResponse:
        """What the server works with."""
        return pb.ListProfilesResponse(
            profiles=[
                pb.NamedProfile(name=name, profile=profile_message(profile), is_default=name == DEFAULT_PROFILE_NAME)
                for name, profile in sorted(PROFILES.items())
            ],
            kernel=self._kernel,
            available_kernels=kernels.available(),
            max_pixels=MAX_PIXELS,
            max_source_bytes=self._settings.max_source_bytes,
        )


def _invalid(field: str, message: str) -> Refusal:
    return Refusal(Reason.INVALID_FIELD, message, violations=[(field, message)])
