"""From messages to the values that the work is made of. What does not fit is refused with its field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    MAX_PIXELS,
    PROFILES,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    Plan,
    SixteenBitGrey,
    VisionError,
    VisionProfile,
    check_plan,
    check_profile,
    plan,
)
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.regions import Target
from interlock_preprocess.settings import MAX_CALL_SOURCE_BYTES, MAX_ID_BYTES, PreprocessSettings

_SHA256_BYTES = 32

_T = TypeVar("_T")


@dataclass(frozen=True)
class PictureRequest:
    """What to make of one picture.

    Attributes:
        total_bytes: length of the source.
        raw_size: width and height of raw pixels; None for an encoded picture.
        profile: the vision profile.
        decode_options: how to decode an encoded picture.
        plan: geometry to use; None: the profile's.
        prefix: what stands before the path of a field of the request, for example `begin.`.
        source_field: path of the field at fault where the picture itself is: its bytes, or the size of raw pixels.
        source_sha256: SHA-256 of the source, where the caller named it; else None.
        timeout: seconds that the picture may take; None: as long as its call.
        region: where in shared memory its patches go; None: into chunks.
    """

    total_bytes: int
    raw_size: tuple[int, int] | None
    profile: VisionProfile
    decode_options: DecodeOptions
    plan: Plan | None
    prefix: str
    source_field: str
    source_sha256: bytes | None = None
    timeout: float | None = None
    region: Target | None = None

    @property
    def patch_bytes(self) -> int:
        """Bytes of one patch."""
        return self.profile.patch_size**2 * 3 * 2

    def plan_for(self, width: int, height: int) -> Plan:
        """The plan of this picture, whose decoded size is `width` x `height`.

        Raises:
            VisionError: there is no legal one.
        """
        chosen = self.plan or plan(width, height, self.profile)
        check_plan(chosen, width, height, self.profile)
        return chosen

    def fault_of(self, error: VisionError) -> ImageFault:
        """What vision refused, with the field's path in the message that the caller sent."""
        return ImageFault(error.reason, str(error), _field_path(error.field, self.prefix, self.source_field))


def read_begin(begin: pb.ImageBegin, settings: PreprocessSettings) -> PictureRequest:
    """The request of a picture of a stream; its id is the stream's business.

    Raises:
        ImageFault: with a field below `begin`.
    """
    if begin.total_bytes > settings.max_source_bytes:
        raise _source_too_large(begin.total_bytes, settings.max_source_bytes, "begin.total_bytes")
    raw_size = _read_kind(begin, "begin.")
    source_field = "begin.width" if raw_size else "data"
    request = _read_request(begin, begin.total_bytes, raw_size, prefix="begin.", source_field=source_field)
    return replace(request, source_sha256=_read_hash(begin), timeout=_read_timeout(begin))


def read_image(request: pb.PreprocessImageRequest) -> tuple[PictureRequest, bytes]:
    """The request of a picture that came in one message, and its bytes; none where it is only named by its hash.

    Raises:
        ImageFault: with its field.
    """
    if len(request.image_id.encode()) > MAX_ID_BYTES:
        raise _invalid("image_id", f"image_id is longer than {MAX_ID_BYTES} bytes")
    kind = request.WhichOneof("source")
    if kind is None:
        raise _invalid("source", "the request has no source; set encoded, raw or hash")
    if kind == "hash":
        return _read_named(request), b""
    data = request.encoded if kind == "encoded" else request.raw.data
    if len(data) > MAX_CALL_SOURCE_BYTES:
        raise _source_too_large(len(data), MAX_CALL_SOURCE_BYTES, kind)
    raw_size, source_field = None, "encoded"
    if kind == "raw":
        raw_size = _read_raw_size(request.raw.width, request.raw.height, len(data), "raw.", "raw.data")
        source_field = "raw.width"
    return _read_request(request, len(data), raw_size, prefix="", source_field=source_field), data


def _read_named(request: pb.PreprocessImageRequest) -> PictureRequest:
    source = request.hash
    raw_size = _read_kind(source, "hash.")
    source_field = "hash.width" if raw_size else "hash"
    named = _read_request(request, source.total_bytes, raw_size, prefix="", source_field=source_field)
    return replace(named, source_sha256=_checked_hash(source.sha256, "hash.sha256"))


def _read_kind(source: pb.ImageBegin | pb.SourceHash, prefix: str) -> tuple[int, int] | None:
    """Width and height of raw pixels, None for an encoded picture, where the bytes come apart from what they are."""
    if source.kind == pb.SOURCE_KIND_RAW_RGB:
        return _read_raw_size(source.width, source.height, source.total_bytes, prefix, f"{prefix}total_bytes")
    if source.kind != pb.SOURCE_KIND_ENCODED:
        raise _invalid(f"{prefix}kind", f"kind is {source.kind}; expected SOURCE_KIND_ENCODED or SOURCE_KIND_RAW_RGB")
    for name, side in (("width", source.width), ("height", source.height)):
        if side:
            raise _invalid(f"{prefix}{name}", f"{name} is {side}; an encoded picture says its size itself: expected 0")
    return None


def read_profile(selector: pb.ProfileSelector, prefix: str = "") -> VisionProfile:
    """The profile that a request selects.

    Raises:
        ImageFault: UNKNOWN_PROFILE or INVALID_PROFILE, with its field below `prefix`.
    """
    match selector.WhichOneof("profile"):
        case None:
            return PROFILES[DEFAULT_PROFILE_NAME]
        case "name":
            if (named := PROFILES.get(selector.name)) is None:
                raise ImageFault(
                    Reason.UNKNOWN_PROFILE,
                    f"no profile {selector.name[:MAX_ID_BYTES]!r}; this server has {', '.join(sorted(PROFILES))}",
                    f"{prefix}profile.name",
                )
            return named
        case "inline":
            try:
                return profile_from_message(selector.inline)
            except VisionError as error:
                raise ImageFault(error.reason, str(error), _field_path(error.field, prefix, "")) from None


def profile_from_message(message: pb.VisionProfile) -> VisionProfile:
    """The profile of a message.

    Raises:
        VisionError: INVALID_PROFILE.
    """
    profile = VisionProfile(
        patch_size=message.patch_size,
        downsample_ratio=message.downsample_ratio,
        max_image_tokens=message.max_image_tokens,
        min_pixels=message.min_pixels,
        max_wh_ratio=message.max_wh_ratio if message.HasField("max_wh_ratio") else None,
        image_mean=_channels(message.image_mean, "image_mean"),
        image_std=_channels(message.image_std, "image_std"),
    )
    check_profile(profile)
    return profile


def profile_message(profile: VisionProfile) -> pb.VisionProfile:
    """The message of a profile."""
    return pb.VisionProfile(
        patch_size=profile.patch_size,
        downsample_ratio=profile.downsample_ratio,
        max_image_tokens=profile.max_image_tokens,
        min_pixels=profile.min_pixels,
        max_wh_ratio=profile.max_wh_ratio,
        image_mean=profile.image_mean,
        image_std=profile.image_std,
    )


def plan_message(plan: Plan) -> pb.Plan:
    """The message of a plan: the same fields."""
    return pb.Plan(**{field.name: getattr(plan, field.name) for field in fields(Plan)})


def _read_request(
    message: pb.ImageBegin | pb.PreprocessImageRequest,
    total_bytes: int,
    raw_size: tuple[int, int] | None,
    *,
    prefix: str,
    source_field: str,
) -> PictureRequest:
    if raw_size and message.HasField("decode_options"):
        raise _invalid(f"{prefix}decode_options", "raw pixels are not decoded; leave decode_options out")
    request = PictureRequest(
        total_bytes=total_bytes,
        raw_size=raw_size,
        profile=read_profile(message.profile, prefix),
        decode_options=_read_decode_options(message.decode_options, f"{prefix}decode_options."),
        plan=Plan(**{field.name: getattr(message.plan, field.name) for field in fields(Plan)})
        if message.HasField("plan")
        else None,
        prefix=prefix,
        source_field=source_field,
        region=Target(message.region.handle, message.region.offset, message.region.size, f"{prefix}region")
        if message.HasField("region")
        else None,
    )
    if raw_size:
        try:
            request.plan_for(*raw_size)
        except VisionError as error:
            raise request.fault_of(error) from None
    return request


def _read_hash(begin: pb.ImageBegin) -> bytes | None:
    if not begin.HasField("source_sha256"):
        return None
    return _checked_hash(begin.source_sha256, "begin.source_sha256")


def _checked_hash(value: bytes, field: str) -> bytes:
    if len(value) != _SHA256_BYTES:
        raise _invalid(field, f"{field.rpartition('.')[2]} has {len(value)} bytes; SHA-256 has {_SHA256_BYTES}")
    return value


def _read_timeout(begin: pb.ImageBegin) -> float | None:
    if not begin.HasField("timeout"):
        return None
    seconds = begin.timeout.seconds + begin.timeout.nanos / 1e9
    if seconds < 0:
        raise _invalid("begin.timeout", f"timeout is {seconds:g} s; expected no less than 0")
    return seconds


def _read_raw_size(width: int, height: int, length: int, prefix: str, length_field: str) -> tuple[int, int]:
    for name, side in (("width", width), ("height", height)):
        if side < 1:
            raise _invalid(f"{prefix}{name}", f"{name} is {side}; raw pixels have at least 1")
    if width * height > MAX_PIXELS:
        raise ImageFault(
            Reason.IMAGE_TOO_MANY_PIXELS, f"{width}x{height} pixels are more than {MAX_PIXELS}", f"{prefix}width"
        )
    if length != width * height * 3:
        raise ImageFault(
            Reason.SOURCE_LENGTH_MISMATCH,
            f"{length} bytes; {width}x{height} raw pixels are exactly {width * height * 3}",
            length_field,
        )
    return width, height


def _read_decode_options(message: pb.DecodeOptions, prefix: str) -> DecodeOptions:
    alpha_handling = _chosen(message.alpha_handling, _ALPHA_HANDLING, f"{prefix}alpha_handling")
    background = DecodeOptions().background
    if message.HasField("background"):
        if alpha_handling is not AlphaHandling.COMPOSITE:
            raise _invalid(f"{prefix}background", "a background is only used with ALPHA_HANDLING_COMPOSITE")
        background = (message.background.red, message.background.green, message.background.blue)
        for name, level in zip(("red", "green", "blue"), background, strict=True):
            if level > 255:
                raise _invalid(f"{prefix}background.{name}", f"{name} is {level}; expected 0 to 255")
    return DecodeOptions(
        exif_orientation=_chosen(message.exif_orientation, _EXIF_ORIENTATION, f"{prefix}exif_orientation"),
        alpha_handling=alpha_handling,
        background=background,
        sixteen_bit_grey=_chosen(message.sixteen_bit_grey, _SIXTEEN_BIT_GREY, f"{prefix}sixteen_bit_grey"),
    )


_EXIF_ORIENTATION: dict[int, ExifOrientation] = {
    pb.EXIF_ORIENTATION_UNSPECIFIED: ExifOrientation.IGNORE,
    pb.EXIF_ORIENTATION_IGNORE: ExifOrientation.IGNORE,
    pb.EXIF_ORIENTATION_APPLY: ExifOrientation.APPLY,
}
_ALPHA_HANDLING: dict[int, AlphaHandling] = {
    pb.ALPHA_HANDLING_UNSPECIFIED: AlphaHandling.DROP,
    pb.ALPHA_HANDLING_DROP: AlphaHandling.DROP,
    pb.ALPHA_HANDLING_COMPOSITE: AlphaHandling.COMPOSITE,
}
_SIXTEEN_BIT_GREY: dict[int, SixteenBitGrey] = {
    pb.SIXTEEN_BIT_GREY_UNSPECIFIED: SixteenBitGrey.CLIP,
    pb.SIXTEEN_BIT_GREY_CLIP: SixteenBitGrey.CLIP,
    pb.SIXTEEN_BIT_GREY_HIGH_BYTE: SixteenBitGrey.HIGH_BYTE,
}


def _chosen(number: int, meanings: Mapping[int, _T], field: str) -> _T:
    """What an enum number means; the sender may know more numbers than we do."""
    try:
        return meanings[number]
    except KeyError:
        raise _invalid(field, f"{number} is no number that this server knows; expected 0 to {max(meanings)}") from None


def _channels(values: Sequence[float], field: str) -> tuple[float, float, float]:
    if not values:
        return (0.5, 0.5, 0.5)
    if len(values) != 3:
        raise VisionError(
            Reason.INVALID_PROFILE, f"profile.{field}", f"{field} has {len(values)} values; expected 3 or none"
        )
    return (values[0], values[1], values[2])


def _field_path(field: str, prefix: str, source_field: str) -> str:
    """The path, in the message of the caller, of what vision calls `field`."""
    if field.startswith("profile."):
        field = "profile.inline." + field.removeprefix("profile.")
    elif not field:
        return ""
    elif not field.startswith(("plan.", "decode_options.")):
        return source_field  # the picture itself, whatever it is called there
    return prefix + field


def _invalid(field: str, message: str) -> ImageFault:
    return ImageFault(Reason.INVALID_FIELD, message, field)


def _source_too_large(size: int, limit: int, field: str) -> ImageFault:
    return ImageFault(Reason.SOURCE_TOO_LARGE, f"the source has {size} bytes; at most {limit} here", field)
