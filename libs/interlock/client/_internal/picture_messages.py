"""Between the values of `interlock.client.pictures` and the messages of `interlock.preprocess.v1`."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING

from interlock.client._internal.sources import Upload
from interlock.client._internal.statuses import image_failed
from interlock.client.errors import UnexpectedAnswerError
from interlock.client.pictures import Picture, PlannedImage, ServedProfiles, Timings
from interlock.preprocess.v1 import preprocess_pb2
from interlock.vision.plan import Plan
from interlock.vision.profiles import DEFAULT_PROFILE_NAME, PROFILES, VisionProfile

if TYPE_CHECKING:
    from interlock.vision import DecodeOptions

_PIXEL_BYTES = 6  # three channels, two bytes each

_PLAN_FIELDS = tuple(field.name for field in fields(Plan))


def plan_from_message(message: preprocess_pb2.Plan) -> Plan:
    """The geometry that the server used or gave."""
    return Plan(**{name: getattr(message, name) for name in _PLAN_FIELDS})


def plan_message(plan: Plan) -> preprocess_pb2.Plan:
    """A geometry to be used."""
    return preprocess_pb2.Plan(**{name: getattr(plan, name) for name in _PLAN_FIELDS})


def profile_message(profile: str | VisionProfile | None) -> preprocess_pb2.ProfileSelector | None:
    """Which profile to use. None: the server's default."""
    if profile is None:
        return None
    if isinstance(profile, str):
        return preprocess_pb2.ProfileSelector(name=profile)
    return preprocess_pb2.ProfileSelector(
        inline=preprocess_pb2.VisionProfile(
            patch_size=profile.patch_size,
            downsample_ratio=profile.downsample_ratio,
            max_image_tokens=profile.max_image_tokens,
            min_pixels=profile.min_pixels,
            max_wh_ratio=profile.max_wh_ratio,
            image_mean=profile.image_mean,
            image_std=profile.image_std,
        )
    )


def profile_from_message(message: preprocess_pb2.VisionProfile) -> VisionProfile:
    """A profile that the server has."""
    return VisionProfile(
        patch_size=message.patch_size,
        downsample_ratio=message.downsample_ratio,
        max_image_tokens=message.max_image_tokens,
        min_pixels=message.min_pixels,
        max_wh_ratio=message.max_wh_ratio if message.HasField("max_wh_ratio") else None,
        image_mean=_channels(message.image_mean),
        image_std=_channels(message.image_std),
    )


def _channels(values: Iterable[float]) -> tuple[float, float, float]:
    channels = tuple(values) or (0.5, 0.5, 0.5)
    if len(channels) != 3:
        raise UnexpectedAnswerError(f"a profile has {len(channels)} values for three channels")
    red, green, blue = channels
    return red, green, blue


def decode_options_message(options: "DecodeOptions | None") -> preprocess_pb2.DecodeOptions | None:
    """How to decode. None: as the reference does."""
    if options is None:
        return None
    red, green, blue = options.background
    composite = options.alpha_handling == "composite"
    return preprocess_pb2.DecodeOptions(
        exif_orientation=preprocess_pb2.ExifOrientation.Value(f"EXIF_ORIENTATION_{options.exif_orientation.upper()}"),
        alpha_handling=preprocess_pb2.AlphaHandling.Value(f"ALPHA_HANDLING_{options.alpha_handling.upper()}"),
        background=preprocess_pb2.Rgb(red=red, green=green, blue=blue) if composite else None,
        sixteen_bit_grey=preprocess_pb2.SixteenBitGrey.Value(f"SIXTEEN_BIT_GREY_{options.sixteen_bit_grey.upper()}"),
    )


def begin_message(picture: Picture, upload: Upload) -> preprocess_pb2.ImageBegin:
    """Announces a picture of a stream, still without a hash, and without what changes from one sending to the next: id,
    place, timeout."""
    return preprocess_pb2.ImageBegin(
        kind=upload.kind,
        total_bytes=len(upload.data),
        width=upload.width,
        height=upload.height,
        profile=profile_message(picture.profile),
        decode_options=decode_options_message(picture.decode_options),
        plan=None if picture.plan is None else plan_message(picture.plan),
    )


def hash_request(picture: Picture, upload: Upload, sha256: bytes) -> preprocess_pb2.PreprocessImageRequest:
    """A picture that is only named."""
    return preprocess_pb2.PreprocessImageRequest(
        image_id=picture.image_id,
        hash=preprocess_pb2.SourceHash(
            sha256=sha256,
            kind=upload.kind,
            total_bytes=len(upload.data),
            width=upload.width,
            height=upload.height,
        ),
        profile=profile_message(picture.profile),
        decode_options=decode_options_message(picture.decode_options),
        plan=None if picture.plan is None else plan_message(picture.plan),
    )


def image_request(picture: Picture, upload: Upload) -> preprocess_pb2.PreprocessImageRequest:
    """A picture in one message."""
    request = preprocess_pb2.PreprocessImageRequest(
        image_id=picture.image_id,
        profile=profile_message(picture.profile),
        decode_options=decode_options_message(picture.decode_options),
        plan=None if picture.plan is None else plan_message(picture.plan),
    )
    if upload.kind == preprocess_pb2.SOURCE_KIND_RAW_RGB:
        request.raw.CopyFrom(preprocess_pb2.RawRgb(width=upload.width, height=upload.height, data=bytes(upload.data)))
    else:
        request.encoded = bytes(upload.data)
    return request


def most_patch_bytes(picture: Picture) -> int:
    """About the most bytes that the patches of a picture take, before its size is known. Where the server's profile
    differs from ours of that name, it says so, and puts nothing there."""
    if picture.plan is not None:
        return picture.plan.canvas_width * picture.plan.canvas_height * _PIXEL_BYTES
    profile = picture.profile
    if not isinstance(profile, VisionProfile):
        profile = PROFILES.get(profile or DEFAULT_PROFILE_NAME, PROFILES[DEFAULT_PROFILE_NAME])
    token_side = profile.patch_size * profile.downsample_ratio
    return profile.max_image_tokens * token_side * token_side * _PIXEL_BYTES


def timings_from_message(trailer: preprocess_pb2.PatchTrailer) -> Timings:
    """Where the server's time went."""
    return Timings(
        queue=trailer.queue_time.ToTimedelta().total_seconds(),
        decode=trailer.decode_time.ToTimedelta().total_seconds(),
        kernel=trailer.kernel_time.ToTimedelta().total_seconds(),
        from_cache=trailer.from_cache,
    )


def plan_request(
    sizes: Iterable[tuple[int, int]], profile: str | VisionProfile | None, token_types: bool
) -> preprocess_pb2.PlanImagesRequest:
    """Asks for plans."""
    return preprocess_pb2.PlanImagesRequest(
        profile=profile_message(profile),
        sizes=[preprocess_pb2.ImageSize(width=width, height=height) for width, height in sizes],
        with_token_types=token_types,
    )


def planned_images(
    request: preprocess_pb2.PlanImagesRequest, response: preprocess_pb2.PlanImagesResponse
) -> list[PlannedImage]:
    """The plans, in the order asked."""
    if len(response.results) != len(request.sizes):
        raise UnexpectedAnswerError(f"{len(response.results)} plans came for {len(request.sizes)} sizes")
    return [
        PlannedImage(
            size.width,
            size.height,
            plan=plan_from_message(result.plan) if result.HasField("plan") else None,
            error=None if result.HasField("plan") else image_failed(result.error),
            token_types=result.token_types,
        )
        for size, result in zip(request.sizes, response.results, strict=True)
    ]


def served_profiles(response: preprocess_pb2.ListProfilesResponse) -> ServedProfiles:
    """What the server works with."""
    profiles: Mapping[str, VisionProfile] = MappingProxyType(
        {named.name: profile_from_message(named.profile) for named in response.profiles}
    )
    return ServedProfiles(
        profiles=profiles,
        default=next((named.name for named in response.profiles if named.is_default), ""),
        kernel=response.kernel,
        available_kernels=tuple(response.available_kernels),
        max_pixels=response.max_pixels,
        max_source_bytes=response.max_source_bytes,
    )
