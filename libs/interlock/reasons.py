"""Every reason for which Interlock refuses something, and the status that goes with it.

A reason is stable and machine-readable: it travels as `google.rpc.ErrorInfo.reason` (domain `interlock`), or as
`ImageError.reason` in a stream of pictures. Messages are for people and may change. `docs/errors.md` explains each
reason; a test keeps that table equal to this one.
"""

from enum import StrEnum

from google.rpc import code_pb2

DOMAIN = "interlock"
"""`google.rpc.ErrorInfo.domain` of every refusal."""


class Reason(StrEnum):
    """Why something was refused."""

    code: int
    """The status that goes with the reason: a number of `google.rpc.Code`."""

    def __new__(cls, reason: str, code: int) -> "Reason":
        member = str.__new__(cls, reason)
        member._value_ = reason
        member.code = code
        return member

    # Any service
    INVALID_FIELD = "INVALID_FIELD", code_pb2.INVALID_ARGUMENT
    OVERLOADED = "OVERLOADED", code_pb2.RESOURCE_EXHAUSTED
    DRAINING = "DRAINING", code_pb2.UNAVAILABLE
    INTERNAL = "INTERNAL", code_pb2.INTERNAL
    MALFORMED_MESSAGE = "MALFORMED_MESSAGE", code_pb2.INVALID_ARGUMENT
    UNIMPLEMENTED = "UNIMPLEMENTED", code_pb2.UNIMPLEMENTED
    UNKNOWN_SERVICE = "UNKNOWN_SERVICE", code_pb2.NOT_FOUND
    UNAUTHENTICATED = "UNAUTHENTICATED", code_pb2.UNAUTHENTICATED
    NOT_PERMITTED = "NOT_PERMITTED", code_pb2.PERMISSION_DENIED

    # Bootstrap
    REVISION_CONFLICT = "REVISION_CONFLICT", code_pb2.ABORTED
    CONTRACT_MISMATCH = "CONTRACT_MISMATCH", code_pb2.FAILED_PRECONDITION
    STALE_INSTANCE = "STALE_INSTANCE", code_pb2.FAILED_PRECONDITION
    STALE_INCARNATION = "STALE_INCARNATION", code_pb2.FAILED_PRECONDITION
    NOT_READY = "NOT_READY", code_pb2.UNAVAILABLE
    REVISION_NOT_REACHED = "REVISION_NOT_REACHED", code_pb2.DEADLINE_EXCEEDED
    UNKNOWN_GROUP = "UNKNOWN_GROUP", code_pb2.NOT_FOUND
    UNKNOWN_RANK = "UNKNOWN_RANK", code_pb2.NOT_FOUND
    TOO_MANY_GROUPS = "TOO_MANY_GROUPS", code_pb2.RESOURCE_EXHAUSTED
    TOO_MANY_ROOMS = "TOO_MANY_ROOMS", code_pb2.RESOURCE_EXHAUSTED
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE", code_pb2.UNAVAILABLE
    STORE_FULL = "STORE_FULL", code_pb2.RESOURCE_EXHAUSTED
    STORE_CONTENDED = "STORE_CONTENDED", code_pb2.UNAVAILABLE

    # Preprocess: the request
    UNKNOWN_PROFILE = "UNKNOWN_PROFILE", code_pb2.NOT_FOUND
    INVALID_PROFILE = "INVALID_PROFILE", code_pb2.INVALID_ARGUMENT
    INVALID_PLAN = "INVALID_PLAN", code_pb2.INVALID_ARGUMENT
    NO_LEGAL_PLAN = "NO_LEGAL_PLAN", code_pb2.INVALID_ARGUMENT
    SOURCE_TOO_LARGE = "SOURCE_TOO_LARGE", code_pb2.INVALID_ARGUMENT
    SOURCE_LENGTH_MISMATCH = "SOURCE_LENGTH_MISMATCH", code_pb2.INVALID_ARGUMENT
    SOURCE_HASH_MISMATCH = "SOURCE_HASH_MISMATCH", code_pb2.INVALID_ARGUMENT
    SOURCE_NEEDED = "SOURCE_NEEDED", code_pb2.NOT_FOUND
    CREDITS_EXCEEDED = "CREDITS_EXCEEDED", code_pb2.RESOURCE_EXHAUSTED
    CANCELLED = "CANCELLED", code_pb2.CANCELLED
    STALLED = "STALLED", code_pb2.DEADLINE_EXCEEDED
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED", code_pb2.DEADLINE_EXCEEDED

    # Preprocess: shared memory
    SHARED_MEMORY_OFF = "SHARED_MEMORY_OFF", code_pb2.UNIMPLEMENTED
    TOO_MANY_REGIONS = "TOO_MANY_REGIONS", code_pb2.RESOURCE_EXHAUSTED
    REGION_FILE_UNUSABLE = "REGION_FILE_UNUSABLE", code_pb2.FAILED_PRECONDITION
    UNKNOWN_REGION = "UNKNOWN_REGION", code_pb2.NOT_FOUND
    REGION_TOO_SMALL = "REGION_TOO_SMALL", code_pb2.INVALID_ARGUMENT
    REGION_RANGE_IN_USE = "REGION_RANGE_IN_USE", code_pb2.ABORTED
    REGION_WRITE_FAILED = "REGION_WRITE_FAILED", code_pb2.FAILED_PRECONDITION

    # Preprocess: the picture
    IMAGE_EMPTY = "IMAGE_EMPTY", code_pb2.INVALID_ARGUMENT
    IMAGE_UNRECOGNIZED = "IMAGE_UNRECOGNIZED", code_pb2.INVALID_ARGUMENT
    IMAGE_TRUNCATED = "IMAGE_TRUNCATED", code_pb2.INVALID_ARGUMENT
    IMAGE_DAMAGED = "IMAGE_DAMAGED", code_pb2.INVALID_ARGUMENT
    IMAGE_TOO_MANY_PIXELS = "IMAGE_TOO_MANY_PIXELS", code_pb2.INVALID_ARGUMENT
