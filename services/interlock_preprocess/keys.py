"""The key of a picture: two requests have the same one only if their patches are the same, byte for byte.

It is the SHA-256 of a record of everything that the patches depend on: not the name of a profile but its values, and
not the bytes of the source but their SHA-256, so that a caller that has only that can ask for the picture too.
"""

import struct
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version

from interlock_preprocess.requests import PictureRequest

_KEY_VERSION = 1


def _decoder_versions() -> Iterator[str]:
    for package in ("pillow", "simplejpeg"):
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} none"


_DECODERS = tuple(_decoder_versions())


def picture_key(request: PictureRequest, source_sha256: bytes, scope: str) -> bytes:
    """The key of a picture.

    Args:
        request: what is to be made of it.
        source_sha256: SHA-256 of its source.
        scope: whose pictures it may be shared with; empty: everyone's.
    """
    return sha256(b"".join(map(_encoded, _values(request, source_sha256, scope)))).digest()


def _values(request: PictureRequest, source_sha256: bytes, scope: str) -> Iterator[object]:
    """The record: always the same fields in the same order, but for the plan, which comes last."""
    yield _KEY_VERSION
    yield from _DECODERS
    yield scope
    yield source_sha256
    yield request.total_bytes
    yield from request.raw_size or (None, None)
    for part in (request.decode_options, request.profile, request.plan):
        if part is None:
            yield None
            continue
        for field in fields(part):
            value = getattr(part, field.name)
            yield from value if isinstance(value, tuple) else (value,)


def _encoded(value: object) -> bytes:
    """Type, length and value, so that no two records are the same bytes."""
    match value:
        case None:
            kind, text = b"n", b""
        case str():
            kind, text = b"s", value.encode()
        case bytes():
            kind, text = b"b", value
        case int():
            kind, text = b"i", str(value).encode()
        case float():
            kind, text = b"f", struct.pack("<d", value)
        case _:
            raise TypeError(f"{value!r} cannot be part of a key")
    return struct.pack("<cQ", kind, len(text)) + text
