"""`values.json`: for each field of each request, legal values, illegal ones, and what servers answer."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock_bootstrap.settings import BootstrapSettings
from scripts.make_vectors.bootstrap_values import bootstrap_requests
from scripts.make_vectors.files import Files, canonical_json, hex_bytes, table_file
from scripts.make_vectors.preprocess_values import preprocess_requests
from scripts.make_vectors.refusals import STATUS_TRAILER, Servers, running
from scripts.make_vectors.requests import ABSENT, HexOnly, Request, Value

MOST_JSON = 1024
"""Bytes of a request that is also given as JSON."""


@dataclass(frozen=True)
class _Case:
    field: str
    about: str
    legal: bool
    named: str
    service: str
    method: str
    messages: Sequence[Message]
    as_json: bool


def value_files() -> Files:
    return {"values.json": table_file(asyncio.run(_entries()))}


def all_requests() -> Iterator[Request]:
    """Every request with the values of its fields, in the order in which to send them."""
    yield from bootstrap_requests()
    yield from preprocess_requests()


async def _entries() -> list[dict[str, Any]]:
    async with running(BootstrapSettings(store="memory")) as servers:
        return [await _entry(servers, case) for case in _cases()]


def _cases() -> Iterator[_Case]:
    numbers = count(1)
    for request in all_requests():
        for field in request.fields:
            for legal, values in ((True, field.legal), (False, field.illegal)):
                for value in values:
                    message = type(request.base)()
                    message.CopyFrom(request.base)
                    if request.own_group and field.path != "group":
                        message.group = f"v{next(numbers)}"  # type: ignore[attr-defined]
                    for path, needed in field.needs:
                        put(message, path, needed)
                    plain = value.value if isinstance(value, HexOnly) else value
                    put(message, field.path, plain)
                    yield _Case(
                        field=request.prefix + field.path,
                        about=f"{request.prefix}{field.path} is {_told(plain)}",
                        legal=legal,
                        named=request.prefix + (field.named or field.path),
                        service=request.service,
                        method=request.method,
                        messages=request.conversation(message),
                        as_json=not isinstance(value, HexOnly) and message.ByteSize() <= MOST_JSON,
                    )


def put(message: Message, path: str, value: Value) -> None:
    """Sets the field at a path such as `leases[0].key.dp`; `ABSENT` clears it."""
    *parents, last = re.findall(r"\w+(?:\[\d+\])?", path)
    for parent in parents:
        name, _, index = parent.partition("[")
        message = getattr(message, name) if not index else getattr(message, name)[int(index[:-1])]
    if value is ABSENT:
        message.ClearField(last)
    elif isinstance(value, Message):
        message.ClearField(last)
        getattr(message, last).SetInParent()
        getattr(message, last).CopyFrom(value)
    elif isinstance(value, list):
        message.ClearField(last)
        getattr(message, last).extend(value)
    elif isinstance(value, dict):
        message.ClearField(last)
        getattr(message, last).update(value)
    else:
        setattr(message, last, value)


def _told(value: Value) -> str:
    if value is ABSENT:
        return "absent"
    if isinstance(value, Message):
        return f"{{{', '.join(str(value).split(chr(10)))[:-2]}}}" if value.ByteSize() <= 40 else "there"
    if isinstance(value, (str, bytes, list, dict)) and len(value) > 40:
        unit = {str: "characters", bytes: "bytes", list: "entries", dict: "entries"}[type(value)]
        size = f" and {len(value.encode())} bytes" if isinstance(value, str) and not value.isascii() else ""
        return f"of {len(value)} {unit}{size}"
    return ascii(value)


async def _entry(servers: Servers, case: _Case) -> dict[str, Any]:
    answer = await _answer(servers, case)
    refused = answer["code_name"] == "INVALID_ARGUMENT"
    at_fault = any(field.startswith(case.named) or case.named.startswith(field) for field in answer["fields"])
    if refused == case.legal or (refused and not at_fault):
        raise AssertionError(f"{case.about}: meant to be {'legal' if case.legal else 'illegal'}, got {answer}")
    return {
        "method": f"{case.service}/{case.method}",
        "field": case.field,
        "about": case.about,
        "legal": case.legal,
        "requests": [
            {
                "type": message.DESCRIPTOR.full_name,
                "hex": hex_bytes(message),
                **({"json": canonical_json(message)} if case.as_json else {}),
            }
            for message in case.messages
        ],
        "answer": answer,
    }


async def _answer(servers: Servers, case: _Case) -> dict[str, Any]:
    stub = servers.bootstrap if case.service.endswith("BootstrapService") else servers.preprocess
    method = getattr(stub, case.method)
    request: Any = _one_by_one(case.messages) if case.method in ("KeepAlive", "PreprocessImages") else case.messages[0]
    try:
        if isinstance(method, (grpc.aio.UnaryUnaryMultiCallable,)):
            return _told_by_answer(await method(request, timeout=30))
        call = method(request, timeout=30)
        async for message in call:
            if case.method == "WatchTopology":
                call.cancel()
                break
            if isinstance(message, pp.PatchFrame) and message.HasField("error"):
                return _told_by_error(message.error)
    except grpc.aio.AioRpcError as error:
        return _told_by_status(error)
    return _told_by_answer(None)


async def _one_by_one(messages: Sequence[Message]) -> AsyncIterator[Message]:
    for message in messages:
        yield message


def _told_by_answer(message: Message | None) -> dict[str, Any]:
    for result in message.results if isinstance(message, pp.PlanImagesResponse) else ():
        if result.HasField("error"):
            return _told_by_error(result.error)
    return {"code_name": "OK", "reason": "", "fields": []}


def _told_by_error(error: pp.ImageError) -> dict[str, Any]:
    return {
        "code_name": code_pb2.Code.Name(error.code),
        "reason": error.reason,
        "fields": [error.field] if error.field else [],
    }


def _told_by_status(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    status = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())[STATUS_TRAILER])
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(bad_request)
    return {
        "code_name": code_pb2.Code.Name(status.code),
        "reason": info.reason,
        "fields": [violation.field for violation in bad_request.field_violations],
    }
