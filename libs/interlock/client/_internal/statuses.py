"""From a failed call, or an error frame, to the exception that tells it."""

import asyncio
from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from interlock.client._internal.details import typed_detail
from interlock.client.errors import (
    DETAIL_ERRORS,
    REASON_ERRORS,
    CallCancelledError,
    DeadlineError,
    ImageFailedError,
    InterlockError,
    RefusedError,
    UnreachableError,
)
from interlock.preprocess.v1 import preprocess_pb2
from interlock.reasons import DOMAIN

_STATUS_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def error_of(call: grpc.RpcError, address: str) -> InterlockError:
    """The exception that tells why a call failed."""
    # Both faces raise errors that are calls as well; grpc's types do not say so.
    code: grpc.StatusCode = call.code()
    text: str = call.details() or ""
    status = _rich_status(call)
    info = error_details_pb2.ErrorInfo()
    named = any(detail.Unpack(info) and info.domain == DOMAIN for detail in status.details)
    if not named:
        if code is grpc.StatusCode.UNAVAILABLE:
            return UnreachableError(f"{address}: {text or 'no connection'}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineError(f"{address}: no answer in time")
        if code is grpc.StatusCode.CANCELLED:
            return CallCancelledError(f"{address}: {text or 'cancelled'}")
        return RefusedError("", code, text)
    return _refusal(code, text, info, status)


def sending_error_of(call: grpc.RpcError, address: str) -> InterlockError:
    """As `error_of`, for an asynchronous call that is being written to.

    grpc.aio puts INTERNAL in place of the status that the server sent, if a write fails as the call ends
    (github.com/grpc/grpc issue 36066). So without a reason that status only tells that the call is over.
    """
    error = error_of(call, address)
    if isinstance(error, RefusedError) and error.code is grpc.StatusCode.INTERNAL and not error.reason:
        return UnreachableError(f"{address}: the call ended while something was being sent ({error.message})")
    return error


def raise_if_closed(address: str) -> None:
    """To be called while an `asyncio.CancelledError` is handled: tells a call that was ended under its reader from a
    reader that is itself cancelled.

    Raises:
        CallCancelledError: nobody cancelled the running task, so its call was ended, as closing a client does.
    """
    task = asyncio.current_task()
    if task is not None and not task.cancelling():
        raise CallCancelledError(f"{address}: the client was closed") from None


def _rich_status(call: grpc.RpcError) -> status_pb2.Status:
    """The status with its details; an empty one where there is none, or none that can be read."""
    try:
        status = rpc_status.from_call(call)
    except (ValueError, DecodeError):
        status = None
    return status_pb2.Status() if status is None else status


def _refusal(
    code: grpc.StatusCode, text: str, info: error_details_pb2.ErrorInfo, status: status_pb2.Status
) -> RefusedError:
    violations: list[tuple[str, str]] = []
    details: list[object] = []
    retry_delay: float | None = None
    bad_request, retry_info = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for packed in status.details:
        if packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            continue
        try:
            if packed.Unpack(bad_request):
                violations += [(fault.field, fault.description) for fault in bad_request.field_violations]
            elif packed.Unpack(retry_info):
                retry_delay = retry_info.retry_delay.ToTimedelta().total_seconds()
            else:
                details.append(typed_detail(packed))
        except (DecodeError, ValueError):
            # A detail that cannot be read must not hide the refusal itself.
            details.append(packed)
    return _error_class(info.reason, details)(
        info.reason,
        code,
        text,
        metadata=dict(info.metadata),
        field_violations=violations,
        details=details,
        retry_delay=retry_delay,
    )


def _error_class(reason: str, details: list[object]) -> type[RefusedError]:
    """The class that goes with the reason; the plain one if the typed detail that it promises did not come."""
    promised = DETAIL_ERRORS.get(reason)
    if promised is not None:
        kind, detail_type = promised
        return kind if any(isinstance(detail, detail_type) for detail in details) else RefusedError
    return REASON_ERRORS.get(reason, RefusedError)


def image_failed(error: preprocess_pb2.ImageError) -> ImageFailedError:
    """The exception that an error frame tells."""
    return ImageFailedError(
        error.reason,
        _STATUS_CODES.get(error.code, grpc.StatusCode.UNKNOWN),
        error.message,
        field_violations=[(error.field, error.message)] if error.field else (),
        retry_delay=error.retry_delay.ToTimedelta().total_seconds() if error.HasField("retry_delay") else None,
    )


def as_image_failed(error: InterlockError) -> InterlockError:
    """A refusal of a call that is for one picture, as that picture's error; anything else as it is."""
    if not isinstance(error, RefusedError):
        return error
    return ImageFailedError(
        error.reason,
        error.code,
        error.message,
        metadata=error.metadata,
        field_violations=error.field_violations,
        details=error.details,
        retry_delay=error.retry_delay,
    )
