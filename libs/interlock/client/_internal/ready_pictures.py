"""A caller's picture, made ready to be sent: its bytes at hand, and the message that announces it."""

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from interlock.client._internal.hashes import HashFirstPolicy
from interlock.client._internal.picture_messages import begin_message, most_patch_bytes
from interlock.client._internal.retry import check_timeout
from interlock.client._internal.sources import Upload, upload_of
from interlock.client.errors import SourceError
from interlock.client.pictures import Picture, Source
from interlock.preprocess.v1 import preprocess_pb2


@dataclass(frozen=True)
class ReadyPicture:
    """A picture that can be sent."""

    image_id: str
    begin: preprocess_pb2.ImageBegin
    """Announces it; what changes from one sending to the next is still missing."""
    upload: Upload
    most_patch_bytes: int
    """What has to be set aside for its patches in shared memory."""
    timeout: float | None
    """Seconds from when it is first sent, after which it fails."""


@dataclass(frozen=True)
class UnreadablePicture:
    """A picture whose source cannot be had."""

    image_id: str
    error: SourceError


Item: TypeAlias = Source | Picture | ReadyPicture
"""What a stream takes: what callers hand in, and what was made ready already."""


def ready(picture: Picture, defaults: Picture, hash_first: HashFirstPolicy) -> ReadyPicture:
    """Makes a picture ready to be sent: reads its source, hashes it if need be, and fills in what holds for all.

    Raises:
        SourceError: its source cannot be had.
        TypeError: its source is nothing that can be a picture.
        ValueError: a number of its profile, plan or timeout is none that can be sent, for example a negative one.
    """
    picture = picture.with_defaults(defaults)
    if picture.timeout is not None:
        check_timeout(picture.timeout)
    upload = upload_of(picture.source)
    begin = begin_message(picture, upload)
    if hash_first.applies_to(upload.data):
        begin.source_sha256 = hashlib.sha256(upload.data).digest()
    return ReadyPicture(picture.image_id, begin, upload, most_patch_bytes(picture), picture.timeout)


def ready_or_unreadable(
    item: Source | Picture, defaults: Picture, hash_first: HashFirstPolicy
) -> ReadyPicture | UnreadablePicture:
    """One of many, made ready.

    Raises:
        TypeError, ValueError: as with `ready`.
    """
    picture = item if isinstance(item, Picture) else Picture(item)
    try:
        return ready(picture, defaults, hash_first)
    except SourceError as error:
        return UnreadablePicture(picture.image_id, error)
