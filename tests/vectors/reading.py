"""How the tests read the vector files: as a client of any language would, with JSON and protobuf alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from interlock.bootstrap.v1 import bootstrap_pb2, bootstrap_service_pb2, errors_pb2
from interlock.kv.v1 import pool_name_pb2, spec_layout_pb2
from interlock.preprocess.v1 import preprocess_pb2, preprocess_service_pb2

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "vectors"
CONTRACT: tuple[FileDescriptor, ...] = tuple(
    module.DESCRIPTOR
    for module in (
        pool_name_pb2,
        spec_layout_pb2,
        bootstrap_pb2,
        bootstrap_service_pb2,
        errors_pb2,
        preprocess_pb2,
        preprocess_service_pb2,
    )
)
"""The files of the contract."""


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("ascii"))


def message_type(full_name: str) -> type[Message]:
    return GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))


def message_types() -> Iterator[Descriptor]:
    """Every message of the contract; entries of maps are fields, not messages."""
    for file in CONTRACT:
        for descriptor in file.message_types_by_name.values():
            yield descriptor
            yield from (nested for nested in descriptor.nested_types if not nested.GetOptions().map_entry)


def fields_set(message: Message) -> Iterator[str]:
    """Full names of the fields that are set in a message, or in one inside of it."""
    for field, value in message.ListFields():
        yield field.full_name
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in [value] if isinstance(value, Message) else value:
            yield from fields_set(inner)
