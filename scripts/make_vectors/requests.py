"""What `values.json` is made from: a request that is served, and what to put into its fields."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from google.protobuf.message import Message

UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""The field is not there."""

Value = Any
"""A number, text, bytes, a list, a dict, a message, or `ABSENT`."""


@dataclass(frozen=True)
class HexOnly:
    """A value that protobuf's JSON cannot say."""

    value: Value


@dataclass(frozen=True)
class Field:
    """Values of one field.

    Attributes:
        path: from the request to the field.
        needs: paths and values of other fields that are needed so that this one is judged.
        named: path that an answer names where it is another than `path`.
    """

    path: str
    legal: Sequence[Value] = ()
    illegal: Sequence[Value] = ()
    needs: Sequence[tuple[str, Value]] = field(default=())
    named: str = ""


@dataclass(frozen=True)
class Request:
    """A request that is served as it stands, and its fields.

    Attributes:
        service, method: full name of the service, name of its method.
        base: the message whose fields are changed.
        own_group: each value is tried in a group of its own.
        prefix: what stands before the path of a field in the answer.
        conversation: all the messages to send, from the changed one.
    """

    service: str
    method: str
    base: Message
    fields: Sequence[Field]
    own_group: bool = False
    prefix: str = ""
    conversation: Callable[[Any], Sequence[Message]] = lambda message: [message]


def texts(path: str, *legal: str) -> Field:
    """An optional text of at most 256 bytes of UTF-8, printable."""
    return Field(
        path,
        legal=[ABSENT, *legal, "a b", "\u9375", "x" * 256, "\u00e9" * 128],
        illegal=["", "x" * 257, "\u00e9" * 129, "a\nb", "a\0", "\u2028"],
    )
