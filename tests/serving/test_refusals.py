"""The status of a refusal: what is in it, and that it always fits into the trailers."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from google.rpc import code_pb2, error_details_pb2
from grpc_status import rpc_status
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceServicer, BootstrapServiceStub
from interlock.reasons import Reason
from interlock.serving import Refusal

ANY_TEXT = st.text(st.characters(), max_size=50) | st.builds(
    lambda character, count: character * count, st.characters(), st.integers(0, 5_000)
)


def unpack(status, message_class):
    found = []
    for detail in status.details:
        message = message_class()
        if detail.Unpack(message):
            found.append(message)
    return found


def test_a_status_holds_everything_that_the_refusal_says():
    conflict = errors_pb2.RevisionConflict(revision=7)
    status = Refusal(
        Reason.REVISION_CONFLICT,
        "the revision is 7, not 6",
        metadata={"group": "default"},
        violations=[
            ("route.sizes.tp", "expected at least 1, got 0"),
            ("route.rank_port", "expected 1 to 65535, got 0"),
        ],
        details=[conflict],
        retry_delay=1.5,
    ).status()
    assert (status.code, status.message) == (code_pb2.ABORTED, "the revision is 7, not 6")
    info = error_details_pb2.ErrorInfo(domain="interlock", reason="REVISION_CONFLICT", metadata={"group": "default"})
    assert unpack(status, error_details_pb2.ErrorInfo) == [info]
    assert unpack(status, errors_pb2.RevisionConflict) == [conflict]
    assert unpack(status, error_details_pb2.RetryInfo) == [
        error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
    ]
    (bad_request,) = unpack(status, error_details_pb2.BadRequest)
    assert [(violation.field, violation.description) for violation in bad_request.field_violations] == [
        ("route.sizes.tp", "expected at least 1, got 0"),
        ("route.rank_port", "expected 1 to 65535, got 0"),
    ]


def test_a_plain_refusal_has_nothing_but_its_reason():
    status = Refusal(Reason.UNKNOWN_GROUP, "no group 'a'").status()
    assert len(status.details) == 1
    assert unpack(status, error_details_pb2.ErrorInfo)[0].reason == "UNKNOWN_GROUP"


def test_a_long_message_is_cut_with_a_mark_at_a_whole_character():
    message = Refusal(Reason.INVALID_FIELD, "ä" * 1_000).status().message
    assert message == "ä" * 298 + "..."
    assert Refusal(Reason.INVALID_FIELD, "x" * 600).status().message == "x" * 600


def test_a_message_that_utf8_cannot_carry_is_told_nevertheless():
    assert Refusal(Reason.INVALID_FIELD, "no file 'a\udcff'").status().message == "no file 'a?'"


def test_violations_that_do_not_fit_are_counted():
    violations = [(f"route.field_{number}", "wrong " * 10) for number in range(1_000)]
    status = Refusal(Reason.INVALID_FIELD, "1,000 fields are wrong", violations=violations).status()
    (bad_request,) = unpack(status, error_details_pb2.BadRequest)
    told, note = bad_request.field_violations[:-1], bad_request.field_violations[-1]
    assert [(violation.field, violation.description) for violation in told] == violations[: len(told)]
    assert len(told) > 30
    assert (note.field, note.description) == ("", f"{1_000 - len(told)} more violations")


def test_a_typed_detail_goes_before_violations_and_one_too_large_is_left_out_whole():
    small, large = StringValue(value="s" * 3_500), StringValue(value="l" * 4_000)
    violations = [("field", "d" * 200)] * 10
    status = Refusal(Reason.INVALID_FIELD, "wrong", details=[large, small], violations=violations).status()
    assert unpack(status, StringValue) == [small]
    (bad_request,) = unpack(status, error_details_pb2.BadRequest)
    assert bad_request.field_violations[-1].description == f"{11 - len(bad_request.field_violations)} more violations"


def test_metadata_that_does_not_fit_is_left_out():
    metadata = {f"key_{number}": "v" * 200 for number in range(100)}
    (info,) = unpack(Refusal(Reason.NOT_READY, "", metadata=metadata).status(), error_details_pb2.ErrorInfo)
    assert dict(info.metadata) == {f"key_{number}": "v" * 200 for number in range(4)}


refusals = st.builds(
    Refusal,
    st.sampled_from(Reason),
    ANY_TEXT,
    metadata=st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=20),
    violations=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=200),
    details=st.lists(
        st.builds(lambda size: StringValue(value="d" * size), st.integers(0, 5_000))
        | st.builds(
            lambda keys: Struct(fields={str(key): {"number_value": key} for key in range(keys)}), st.integers(0, 99)
        ),
        max_size=8,
    ),
    retry_delay=st.none() | st.floats(0, 1e9),
)


@settings(deadline=None)
@given(refusals)
def test_every_status_is_under_4_kib_and_its_trailers_under_8(refusal):
    status = refusal.status()
    assert status.ByteSize() < 4096
    assert unpack(status, error_details_pb2.ErrorInfo)[0].reason == refusal.reason
    assert len(unpack(status, error_details_pb2.RetryInfo)) == (refusal.retry_delay is not None)
    # As HTTP/2 counts headers: name, value and 32 bytes for each; values in their largest coding.
    percent_coded = 3 * len(status.message.encode())
    base64_coded = 4 * ((status.ByteSize() + 2) // 3)
    names = len("grpc-status") + 2 + len("grpc-message") + len("grpc-status-details-bin") + 3 * 32
    assert percent_coded + base64_coded + names < 8192


LARGEST = Refusal(
    Reason.NOT_READY,
    "\U0001f682" * 1_000,
    metadata={"ranks": "\u4e16" * 500},
    details=[StringValue(value="d" * 2_950)],
    violations=[("route", "x")],
)


class RefusesLargely(BootstrapServiceServicer):
    async def GetRankInfo(self, request, context):
        raise LARGEST


async def test_the_largest_status_arrives_whole_every_time(serve):
    """A trailer over gRPC's soft limit would be dropped at random."""
    status = LARGEST.status()
    assert 4_000 < status.ByteSize() < 4_096
    _, channel = await serve(RefusesLargely())
    stub = BootstrapServiceStub(channel)
    for _ in range(100):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetRankInfo(pb.GetRankInfoRequest(), timeout=20)
        assert rpc_status.from_call(caught.value) == status
