"""`Refusal`: what a servicer raises to refuse a call, and the `google.rpc.Status` that the caller gets for it."""

from collections.abc import Mapping, Sequence

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from interlock.reasons import DOMAIN, Reason

STATUS_BYTES = 4095
"""Most bytes of a serialised status. It travels base64-coded in the trailers, which gRPC begins to drop at 8 KiB; with
the percent-coded message beside it, a status of this size stays under that."""

MESSAGE_BYTES = 600
"""Most UTF-8 bytes of a message. Percent-coded in the trailers they become at most three times as many."""

_NAME_BYTES = 128  # a field, or a key of the metadata
_TEXT_BYTES = 256  # a description, or a value of the metadata
_METADATA_BYTES = 1024
_ENTRY_BYTES = 16  # tags and lengths around one entry of a list or map, rounded up
_NOTE_BYTES = 64  # the violation that says how many were left out


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error of the server
    """A request refused for a stable reason. The server turns it into the status of the call.

    Args:
        reason: The stable reason; the status code comes with it.
        message: For people: what is wrong, the value got, what was expected, what to do.
        metadata: Further facts for programs, as `ErrorInfo.metadata`.
        violations: `(field, description)` of every faulty field, as `BadRequest`.
        details: Typed details, such as `interlock.bootstrap.v1.RevisionConflict`. Callers keep them small: one that
            does not fit is left out whole.
        retry_delay: Seconds after which another try makes sense, as `RetryInfo`. None: not said.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        details: Sequence[Message] = (),
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.details = tuple(details)
        self.retry_delay = retry_delay

    def status(self) -> status_pb2.Status:
        """The status to answer with, at most `STATUS_BYTES` long.

        Reason, message (cut) and retry delay are always there. Typed details come before violations where room is
        short; violations left out are counted in a last one without a field.
        """
        status = status_pb2.Status(code=self.reason.code, message=_cut(self.message, MESSAGE_BYTES))
        status.details.append(_packed(self._error_info()))
        if self.retry_delay is not None:
            retry_info = error_details_pb2.RetryInfo()
            retry_info.retry_delay.FromNanoseconds(round(self.retry_delay * 1e9))
            status.details.append(_packed(retry_info))
        for detail in map(_packed, self.details):
            if detail.ByteSize() <= _room(status):
                status.details.append(detail)
        if self.violations:
            bad_request = _packed(_bad_request(self.violations, _room(status)))
            if bad_request.ByteSize() <= _room(status):
                status.details.append(bad_request)
        return status

    def _error_info(self) -> error_details_pb2.ErrorInfo:
        info = error_details_pb2.ErrorInfo(domain=DOMAIN, reason=self.reason.value)
        room = _METADATA_BYTES
        for raw_key, raw_value in self.metadata.items():
            key, value = _cut(raw_key, _NAME_BYTES), _cut(raw_value, _TEXT_BYTES)
            room -= len(key.encode()) + len(value.encode()) + _ENTRY_BYTES
            if room < 0:
                break
            info.metadata[key] = value
        return info


def _bad_request(violations: Sequence[tuple[str, str]], room: int) -> error_details_pb2.BadRequest:
    """As many violations as fit into `room` bytes, and a note on how many do not."""
    bad_request = error_details_pb2.BadRequest()
    room -= _packed(bad_request).ByteSize() + _NOTE_BYTES
    for index, (field, description) in enumerate(violations):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(field, _NAME_BYTES), description=_cut(description, _TEXT_BYTES)
        )
        room -= violation.ByteSize() + _ENTRY_BYTES
        if room < 0:
            bad_request.field_violations.add(description=f"{len(violations) - index} more violations")
            break
        bad_request.field_violations.append(violation)
    return bad_request


def _room(status: status_pb2.Status) -> int:
    """Bytes that one more detail may have."""
    used: int = status.ByteSize()
    return STATUS_BYTES - used - _ENTRY_BYTES


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _cut(text: str, limit: int) -> str:
    """`text` with at most `limit` UTF-8 bytes; what UTF-8 cannot carry (lone surrogates) becomes `?`."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > limit:
        encoded = encoded[: limit - 3] + b"..."
    return encoded.decode("utf-8", "ignore")
