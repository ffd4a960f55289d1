"""Refusals as received: Python, and the client's own reader, agree with `errors.json`."""

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.rpc import code_pb2, error_details_pb2, status_pb2

from interlock.bootstrap.v1 import errors_pb2
from interlock.client._internal.statuses import error_of
from interlock.client.errors import RefusedError
from interlock.reasons import Reason
from vectors.reading import FOLDER, message_type, read

ENTRIES = read("errors.json")


class FailedCall(grpc.RpcError, grpc.Call):
    """A call that ended with a status, as grpc hands it out."""

    def __init__(self, status: bytes) -> None:
        self._status = status_pb2.Status.FromString(status)
        self._metadata = (("grpc-status-details-bin", status),)

    def code(self):
        return next(code for code in grpc.StatusCode if code.value[0] == self._status.code)

    def details(self):
        return self._status.message

    def trailing_metadata(self):
        return self._metadata

    initial_metadata = is_active = time_remaining = cancel = add_callback = None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["status"])
def test_a_status_has_its_details(entry):
    received = (FOLDER / entry["status"]).read_bytes()
    assert len(received) < 4096
    status = status_pb2.Status.FromString(received)
    assert (status.code, status.message) == (entry["code"], entry["message"])
    assert code_pb2.Code.Name(status.code) == entry["code_name"]
    details = []
    for packed in status.details:
        detail = message_type(packed.TypeName())()
        assert packed.Unpack(detail)
        details.append({"type": packed.TypeName(), "json": MessageToDict(detail)})
    assert details == entry["details"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["status"])
def test_the_client_raises_its_reason(entry):
    error = error_of(FailedCall((FOLDER / entry["status"]).read_bytes()), "here")
    assert isinstance(error, RefusedError)
    (info,) = (detail["json"] for detail in entry["details"] if detail["type"] == "google.rpc.ErrorInfo")
    assert info["domain"] == "interlock"
    assert error.reason == info["reason"]
    assert Reason(info["reason"]).code == entry["code"]


def test_every_kind_of_detail_is_there():
    kinds = {detail["type"] for entry in ENTRIES for detail in entry["details"]}
    own = {kind.full_name for kind in errors_pb2.DESCRIPTOR.message_types_by_name.values()}
    assert kinds == own - {"interlock.bootstrap.v1.FieldMismatch"} | {
        f"google.rpc.{kind.DESCRIPTOR.name}"
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    }
