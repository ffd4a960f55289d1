"""A caller's picture, made ready to be sent: its bytes at hand, and the message that announces it."""

from dataclasses import dataclass

from interlock.client._internal.picture_messages import begin_message
from interlock.client._internal.sources import Upload, upload_of
from interlock.client.errors import SourceError
from interlock.client.pictures import Picture, Source
from interlock.preprocess.v1 import preprocess_pb2


@dataclass(frozen=True)
class ReadyPicture:
    """A picture that can be sent."""

    image_id: str
    begin: preprocess_pb2.ImageBegin
    """Announces it; the id on the stream is still missing."""
    upload: Upload


@dataclass(frozen=True)
class UnreadablePicture:
    """A picture whose source cannot be had."""

    image_id: str
    error: SourceError


def ready(item: Source | Picture, defaults: Picture) -> ReadyPicture | UnreadablePicture:
    """Makes a picture ready to be sent: reads its source, and fills in what holds for the whole stream.

    Raises:
        TypeError: the item is nothing that can be a picture.
        ValueError: a number of its profile or plan is none that can be sent, for example a negative one.
    """
    picture = (item if isinstance(item, Picture) else Picture(item)).with_defaults(defaults)
    try:
        upload = upload_of(picture.source)
    except SourceError as error:
        return UnreadablePicture(picture.image_id, error)
    return ReadyPicture(picture.image_id, begin_message(picture, upload), upload)
