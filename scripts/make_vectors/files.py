"""How a vector file is written."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

Files = Mapping[str, bytes]
"""File contents by path below `vectors/`."""

LARGEST_EXACT = 2**53 - 1
"""The largest number that every JSON reader keeps; a larger one is written as text."""


def json_file(document: Any) -> bytes:
    """A JSON document in ASCII, so that no reader can get the encoding wrong."""
    _check_numbers(document)
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def table_file(entries: Sequence[Any]) -> bytes:
    """A JSON list with an entry a line, for lists that are long."""
    _check_numbers(entries)
    return ("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n").encode("ascii")


def canonical_json(message: Message) -> Any:
    """The JSON value of a message, as the protobuf language guide maps it: what is at its default is left out.

    Keys are sorted, since a map gives them in any order.
    """
    return json.loads(json.dumps(MessageToDict(message), sort_keys=True))


def hex_bytes(message: Message) -> str:
    """The message's bytes: fields in the order of their numbers, map entries in the order of their keys."""
    return message.SerializeToString(deterministic=True).hex()


def _check_numbers(value: Any) -> None:
    match value:
        case dict():
            for item in value.values():
                _check_numbers(item)
        case list():
            for item in value:
                _check_numbers(item)
        case int() if abs(value) > LARGEST_EXACT:
            raise ValueError(f"{value} must be written as text: JavaScript would read another number")
