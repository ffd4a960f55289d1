"""Plans, patches, numbers and checksums, as the reference kernel gives them."""

import hashlib
import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf.duration_pb2 import Duration
from numpy.typing import NDArray

from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    PROFILES,
    AlphaHandling,
    DecodeOptions,
    ExifOrientation,
    Plan,
    SixteenBitGrey,
    VisionError,
    VisionProfile,
    decode,
    kernels,
    plan,
)
from interlock.vision.quantise import bf16_codes
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.requests import plan_message, profile_message
from scripts.make_vectors.files import Files, canonical_json, hex_bytes, json_file

CORPUS = Path("tests/data/corpus")
ALTERNATIVES = {
    "exif_transposed": pp.DecodeOptions(exif_orientation=pp.EXIF_ORIENTATION_APPLY),
    "over_white": pp.DecodeOptions(alpha_handling=pp.ALPHA_HANDLING_COMPOSITE),
    "high_byte": pp.DecodeOptions(sixteen_bit_grey=pp.SIXTEEN_BIT_GREY_HIGH_BYTE),
}
"""What the corpus calls the other ways to decode a picture."""

SIZES_A_PROFILE = 200


def vision_files() -> Files:
    files: dict[str, bytes] = {
        "patches.json": json_file(list(_pictures())),
        "bf16.json": json_file(_bf16()),
        "checksums.json": json_file(list(_checksums())),
        "stream.json": json_file(_stream()),
    }
    for name, profile in sorted(PROFILES.items()):
        request, response = _planned(name, profile)
        files[f"plans/{name}.json"] = json_file(
            {
                "profile": canonical_json(profile_message(profile)),
                "plans": [
                    {"width": size.width, "height": size.height, **canonical_json(result)}
                    for size, result in zip(request.sizes, response.results, strict=True)
                ],
            }
        )
        files[f"plans/{name}.request.bin"] = request.SerializeToString(deterministic=True)
        files[f"plans/{name}.response.bin"] = response.SerializeToString(deterministic=True)
    return files


# Plans


def sizes() -> list[tuple[int, int]]:
    """Widths and heights of 200 pictures: the usual ones, the edges, and a spread over all shapes."""
    usual = [
        (1, 1), (2, 1), (1, 2), (13, 13), (14, 14), (15, 15), (41, 42), (42, 42), (43, 42), (97, 61), (224, 224),
        (256, 256), (336, 336), (384, 384), (448, 448), (512, 512), (543, 544), (544, 544), (545, 544), (640, 480),
        (768, 1024), (800, 600), (1000, 1000), (1024, 768), (1080, 1920), (1080, 2400), (1280, 720), (1344, 1344),
        (1920, 1080), (2048, 2048), (2400, 1080), (2560, 1440), (3024, 4032), (3840, 2160), (4000, 3000),
        (7680, 4320), (10_000, 1), (1, 10_000), (10_000, 10_000), (13_377, 13_377), (1, 42_924), (42_924, 1),
        (65_535, 65_535), (65_536, 1), (0, 0), (0, 1), (1, 0), (2**31, 2**31), (2**32 - 1, 1), (1, 2**32 - 1),
        (2**32 - 1, 2**32 - 1), (8, 1), (80, 10), (81, 10), (800, 100), (801, 100), (8_000, 1_000), (8_008, 1_001),
    ]  # fmt: skip
    spread = []
    state = 1
    while len(usual) + len(spread) < SIZES_A_PROFILE:
        state = state * 48_271 % (2**31 - 1)  # the "minimal standard" generator: the same in every language
        width = 1 + state % 4_096
        state = state * 48_271 % (2**31 - 1)
        spread.append((width, 1 + state % 4_096))
    return usual + spread


def _planned(name: str, profile: VisionProfile) -> tuple[pp.PlanImagesRequest, pp.PlanImagesResponse]:
    request = pp.PlanImagesRequest(profile=pp.ProfileSelector(name=name))
    response = pp.PlanImagesResponse()
    for index, (width, height) in enumerate(sizes()):
        request.sizes.add(width=width, height=height)
        try:
            response.results.add(plan=plan_message(plan(width, height, profile)))
        except VisionError as error:
            response.results.add(error=ImageFault(error.reason, str(error), f"sizes[{index}]").image_error())
    return request, response


# Patches


def _pictures() -> Iterator[dict[str, Any]]:
    """Pictures whose pixels do not depend on the version of a decoder, and those that are refused."""
    manifest = json.loads((CORPUS / "manifest.json").read_text())
    for listed in sorted(manifest["files"], key=lambda entry: entry["file"]):
        if listed.get("decoder_dependent") and listed["expect"]["ok"]:
            continue
        for alternative in (None, *listed.get("alternatives", ())):
            yield _picture(listed["file"], ALTERNATIVES[alternative] if alternative else pp.DecodeOptions())


def _picture(name: str, options: pp.DecodeOptions) -> dict[str, Any]:
    data = (CORPUS / name).read_bytes()
    entry: dict[str, Any] = {
        "file": f"{CORPUS}/{name}",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "decode_options": canonical_json(options),
    }
    profile = PROFILES[DEFAULT_PROFILE_NAME]
    try:
        picture = decode(data, _decode_options(options))
        geometry = plan(picture.width, picture.height, profile)
    except VisionError as error:
        return {**entry, "refused": {"code": error.reason.code, "reason": error.reason}}
    buffer = _patches(picture.rgb, geometry, profile)
    header = _header(buffer, geometry, profile, picture.width, picture.height, picture.format)
    return {
        **entry,
        "header": canonical_json(header),
        "patches": _digests(buffer) | {"first_values": _floats(buffer[:16])},
    }


def _patches(rgb: NDArray[np.uint8], geometry: Plan, profile: VisionProfile) -> bytes:
    patches = kernels.get("reference").resize_patchify(rgb, geometry, profile)
    return patches.astype("<u2").tobytes()


def _header(
    buffer: bytes, geometry: Plan, profile: VisionProfile, width: int, height: int, source_format: str
) -> pp.PatchHeader:
    return pp.PatchHeader(
        plan=plan_message(geometry),
        patch_size=profile.patch_size,
        dtype=pp.PATCH_DTYPE_BF16,
        total_bytes=len(buffer),
        source_size=pp.ImageSize(width=width, height=height),
        source_format=source_format,
    )


def _digests(buffer: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(buffer).hexdigest(), "crc32c": google_crc32c.value(buffer)}


def _decode_options(message: pp.DecodeOptions) -> DecodeOptions:
    return DecodeOptions(
        exif_orientation=ExifOrientation.APPLY if message.exif_orientation else ExifOrientation.IGNORE,
        alpha_handling=AlphaHandling.COMPOSITE if message.alpha_handling else AlphaHandling.DROP,
        sixteen_bit_grey=SixteenBitGrey.HIGH_BYTE if message.sixteen_bit_grey else SixteenBitGrey.CLIP,
    )


# Numbers


def _floats(buffer: bytes) -> list[float]:
    """Little-endian bf16 as numbers: each is the upper half of a float32."""
    bits = np.frombuffer(buffer, "<u2").astype(np.uint32) << 16
    return [float(value) for value in bits.view(np.float32)]


def _bf16() -> dict[str, Any]:
    codes = bf16_codes(PROFILES[DEFAULT_PROFILE_NAME])[0].astype("<u2").tobytes()
    others = bytes.fromhex("0000 0080 803f 80bf 0100 7f7f 7fff 8000 4940 ab3e")
    return {
        "levels": {"hex": codes.hex(), "values": _floats(codes)},
        "others": {"hex": others.hex(), "values": _floats(others)},
    }


def _checksums() -> Iterator[dict[str, Any]]:
    for about, buffer in (
        ("no bytes", b""),
        ("one byte", b"\0"),
        ("the check value of CRC catalogues", b"123456789"),
        ("32 zeros", bytes(32)),
        ("32 ones", b"\xff" * 32),
        ("counting up", bytes(range(256))),
        ("bf16 of all levels", bf16_codes(PROFILES[DEFAULT_PROFILE_NAME])[0].astype("<u2").tobytes()),
    ):
        yield {"about": about, "hex": buffer.hex(), **_digests(buffer)}


# A stream

STREAM_PROFILE = VisionProfile(patch_size=2, downsample_ratio=1, max_image_tokens=64, min_pixels=0)


def _stream() -> dict[str, Any]:
    """The frames of three pictures on one stream, interleaved; one fails after its first chunk."""
    pictures = {"first": (5, 3), "second": (2, 4), "failed": (4, 4)}
    frames = {image_id: _picture_frames(image_id, *size) for image_id, size in pictures.items()}
    error = ImageFault(Reason.IMAGE_TRUNCATED, "the file ends too early", "data").image_error()
    frames["failed"] = [*frames["failed"][:2], pp.PatchFrame(image_id="failed", error=error)]
    settings = pp.PatchFrame(settings=pp.StreamSettings(max_images_in_flight=64, max_bytes_in_flight=2**26))
    interleaved = [frame for turn in zip_longest(*frames.values()) for frame in turn if frame is not None]
    return {
        "profile": canonical_json(profile_message(STREAM_PROFILE)),
        "frames": [hex_bytes(frame) for frame in (settings, *interleaved)],
        "pictures": {
            image_id: {"error": canonical_json(last.error)} if last.HasField("error") else _assembled(frames[image_id])
            for image_id, last in ((image_id, own[-1]) for image_id, own in frames.items())
        },
    }


def _picture_frames(image_id: str, width: int, height: int) -> list[pp.PatchFrame]:
    """A header, a chunk a patch, a trailer."""
    rgb = (np.arange(width * height * 3, dtype=np.uint32) * 37 % 256).astype(np.uint8).reshape(height, width, 3)
    geometry = plan(width, height, STREAM_PROFILE)
    buffer = _patches(rgb, geometry, STREAM_PROFILE)
    patch_bytes = STREAM_PROFILE.patch_size**2 * 3 * 2
    return [
        pp.PatchFrame(image_id=image_id, header=_header(buffer, geometry, STREAM_PROFILE, width, height, "")),
        *(
            pp.PatchFrame(
                image_id=image_id,
                chunk=pp.PatchChunk(first_patch=at // patch_bytes, data=buffer[at : at + patch_bytes]),
            )
            for at in range(0, len(buffer), patch_bytes)
        ),
        pp.PatchFrame(
            image_id=image_id,
            trailer=pp.PatchTrailer(
                crc32c=google_crc32c.value(buffer),
                queue_time=Duration(nanos=1_000),
                decode_time=Duration(),
                kernel_time=Duration(nanos=2_000_000),
            ),
        ),
    ]


def _assembled(frames: list[pp.PatchFrame]) -> dict[str, Any]:
    buffer = b"".join(frame.chunk.data for frame in frames)
    header = canonical_json(frames[0].header)
    return {"header": header, "patches": _digests(buffer) | {"hex": buffer.hex(), "values": _floats(buffer)}}
