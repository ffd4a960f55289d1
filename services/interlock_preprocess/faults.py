"""Why one picture fails: an error frame on a stream of pictures, the call's status where the call is the picture."""

from google.protobuf.duration_pb2 import Duration

from interlock.preprocess.v1.preprocess_pb2 import ImageError
from interlock.reasons import Reason
from interlock.serving.refusals import Refusal

_MAX_MESSAGE_LENGTH = 600

RETRY_DELAY = 1.0
"""Seconds after which to try again where the server was busy: about the time of a few large pictures."""


class ImageFault(Exception):  # noqa: N818 - an answer, not an error of the server
    """One picture fails; the others of its stream are served.

    Args:
        reason: the stable reason; gives the status code.
        message: for people.
        field: path of the field at fault, or empty.
        retry_delay: seconds after which trying again may help; None: it does not.
    """

    def __init__(self, reason: Reason, message: str, field: str = "", *, retry_delay: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_delay = retry_delay

    def image_error(self) -> ImageError:
        """The fault in a frame."""
        retry_delay = None
        if self.retry_delay is not None:
            retry_delay = Duration()
            retry_delay.FromMilliseconds(round(self.retry_delay * 1000))
        return ImageError(
            code=self.reason.code,
            reason=self.reason,
            message=self.message[:_MAX_MESSAGE_LENGTH],
            field=self.field,
            retry_delay=retry_delay,
        )

    def refusal(self) -> Refusal:
        """The fault as the status of a call."""
        violations = [(self.field, self.message)] if self.field else []
        return Refusal(self.reason, self.message, violations=violations, retry_delay=self.retry_delay)


def out_of_time() -> ImageFault:
    """The fault of a picture whose deadline, or that of its call, has passed."""
    return ImageFault(Reason.DEADLINE_EXCEEDED, "the picture was not answered whole within its time")
