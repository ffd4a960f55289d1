"""Messages of the regions: durations, and pages of the list."""

import base64
import binascii

from google.protobuf.duration_pb2 import Duration

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.reasons import Reason
from interlock_preprocess.faults import ImageFault
from interlock_preprocess.regions import Region, Regions

_DEFAULT_PAGE = 100
_LARGEST_PAGE = 1_000  # as the proto says; an entry is at most some 300 bytes, so that it fits 3 MiB


def seconds(message: Duration) -> float:
    """A duration in seconds; any that can be sent, an illegal one included."""
    return message.seconds + message.nanos / 1e9


def duration(seconds: float) -> Duration:
    """The message of so many seconds."""
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message


def list_regions(regions: Regions, request: pb.ListRegionsRequest, scope: str) -> pb.ListRegionsResponse:
    """One page of the regions of `scope`.

    Raises:
        ImageFault: SHARED_MEMORY_OFF; or INVALID_FIELD, the token is none that a page gave.
    """
    size = min(request.page_size or _DEFAULT_PAGE, _LARGEST_PAGE)
    page = regions.page(scope, _after(request.page_token), size + 1)
    return pb.ListRegionsResponse(
        regions=[
            pb.Region(file_name=region.file_name, size=region.size, ttl=duration(regions.time_left(region)))
            for region in page[:size]
        ],
        next_page_token=_token(page[size - 1]) if len(page) > size else "",
    )


def _token(last: Region) -> str:
    return base64.urlsafe_b64encode(f"{last.number}/{last.file_name}".encode()).decode()


def _after(token: str) -> tuple[str, int]:
    """File name and number of the last region of the page before; of none where there is no token."""
    if not token:
        return "", 0
    try:
        number, _, file_name = base64.b64decode(token, altchars=b"-_", validate=True).decode().partition("/")
        return file_name, int(number)
    except (binascii.Error, ValueError):
        message = "page_token is not a `next_page_token` of this server"
        raise ImageFault(Reason.INVALID_FIELD, message, "page_token") from None
