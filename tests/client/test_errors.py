"""From a status to the exception: class, typed detail, text for a person."""

import pickle

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

import interlock.client
from client.scripted import Face, Script, bootstrap_servicer, refuses, serving
from interlock.bootstrap.v1 import bootstrap_pb2, errors_pb2
from interlock.client import (
    BootstrapClient,
    ContractMismatchError,
    FieldDifference,
    ImageFailedError,
    InterlockError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RefusedError,
    RevisionConflictError,
    StaleIncarnationError,
    StaleInstanceError,
)
from interlock.client._internal.advice import ADVICE
from interlock.reasons import Reason
from interlock.topology import Instance, InvalidFieldsError, ParallelSizes, RankKey, Route

KEY = RankKey(0, 0, 1, 0)
ROUTE = Route(KEY, 7, ParallelSizes(1, 1, 2, 1), "10.0.0.1", 8998, 64)
LAUNCH = Instance("launch", 5)
ROUTE_MESSAGE = bootstrap_pb2.Route(
    key={"tp": 1},
    incarnation=7,
    sizes={"dp": 1, "cp": 1, "tp": 2, "pp": 1},
    rank_ip="10.0.0.1",
    rank_port=8998,
    page_size=64,
)


def refusal(face: Face, *args: object, **kwargs: object) -> RefusedError:
    """The error that a refusal of RegisterRoute becomes."""
    script = Script([refuses(*args, **kwargs)])
    with serving(bootstrap_servicer(RegisterRoute=script)) as address, pytest.raises(RefusedError) as raised:
        face.call(face.bootstrap(address), "register_route", ROUTE, LAUNCH)
    return raised.value


def test_a_lost_compare_and_swap_carries_what_is_needed_to_decide(face: Face) -> None:
    detail = errors_pb2.RevisionConflict(
        revision=9,
        epoch=2,
        instance={"id": "other", "started_at": 6},
        standing_route=ROUTE_MESSAGE,
        layout_omitted=True,
    )
    error = refusal(face, "REVISION_CONFLICT", grpc.StatusCode.ABORTED, "revision is 9", detail, metadata={"a": "b"})
    assert isinstance(error, RevisionConflictError)
    assert (error.conflict.revision, error.conflict.epoch) == (9, 2)
    assert error.conflict.instance == Instance("other", 6)
    assert error.conflict.standing_route == ROUTE
    assert error.conflict.layout_omitted
    assert (error.reason, error.code, error.message) == (
        Reason.REVISION_CONFLICT,
        grpc.StatusCode.ABORTED,
        "revision is 9",
    )
    assert error.metadata == {"a": "b"}
    assert str(error) == "REVISION_CONFLICT: revision is 9"


def test_a_contract_mismatch_tells_every_field_with_both_values_and_who_holds_it(face: Face) -> None:
    detail = errors_pb2.ContractMismatch(
        mismatches=[
            {"field": "page_size", "standing_value": "64", "offered_value": "128", "held_by": {"tp": 1}},
            {"field": "sizes.tp", "standing_value": "2", "offered_value": "4", "held_by": {}},
        ],
        total_count=3,
        truncated=True,
    )
    error = refusal(face, "CONTRACT_MISMATCH", grpc.StatusCode.FAILED_PRECONDITION, "3 fields differ", detail)
    assert isinstance(error, ContractMismatchError)
    assert error.mismatch.differences == (
        FieldDifference("page_size", "64", "128", RankKey(0, 0, 1, 0)),
        FieldDifference("sizes.tp", "2", "4", RankKey(0, 0, 0, 0)),
    )
    assert error.mismatch.total_count == 3
    assert error.diagnostics().splitlines() == [
        "refused: CONTRACT_MISMATCH (FAILED_PRECONDITION)",
        "3 fields differ",
        "  page_size: the group has 64 (rank dp=0 cp=0 tp=1 pp=0), offered is 128",
        "  sizes.tp: the group has 2 (rank dp=0 cp=0 tp=0 pp=0), offered is 4",
        "  ... and 1 more",
        "What to do: start it with its group's values, or launch all ranks anew with a later instance.",
    ]


def test_a_stale_launch_or_process_is_told_what_is_newer(face: Face) -> None:
    floor = errors_pb2.StaleInstance(floor={"id": "newer", "started_at": 9})
    error = refusal(face, "STALE_INSTANCE", grpc.StatusCode.FAILED_PRECONDITION, "too old", floor)
    assert isinstance(error, StaleInstanceError)
    assert error.floor == Instance("newer", 9)
    assert "newest instance accepted: 'newer' started at 9" in error.diagnostics()

    stale = errors_pb2.StaleIncarnation(key={"tp": 1}, newest_incarnation=8, deregistered=True)
    error = refusal(face, "STALE_INCARNATION", grpc.StatusCode.FAILED_PRECONDITION, "too old", stale)
    assert isinstance(error, StaleIncarnationError)
    assert (error.stale.key, error.stale.newest_incarnation, error.stale.deregistered) == (KEY, 8, True)
    assert "rank dp=0 cp=0 tp=1 pp=0: newest incarnation 8, deregistered" in error.diagnostics()


def test_what_a_group_lacks_is_told_by_key(face: Face) -> None:
    state = bootstrap_pb2.GroupState(
        group="g", registered=1, expected=4, missing_keys=[{"tp": 1}], missing_count=3, undeclared_keys=[{}]
    )
    error = refusal(
        face, "NOT_READY", grpc.StatusCode.UNAVAILABLE, "1 of 4", errors_pb2.NotReady(state=state), retry_delay=1.5
    )
    assert isinstance(error, NotReadyError)
    assert (error.state.registered, error.state.expected, error.state.missing_keys) == (1, 4, (KEY,))
    assert error.retry_delay == 1.5
    assert error.diagnostics().splitlines()[2:-1] == [
        "  registered: 1 of 4 routes",
        "  missing: dp=0 cp=0 tp=1 pp=0",
        "  missing: ... and 2 more",
        "  undeclared: dp=0 cp=0 tp=0 pp=0",
        "Trying again may help after 1.5 s.",
    ]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.INVALID_FIELD, InvalidRequestError),
        (Reason.UNKNOWN_GROUP, NotFoundError),
        (Reason.UNKNOWN_RANK, NotFoundError),
        (Reason.UNKNOWN_PROFILE, NotFoundError),
        (Reason.OVERLOADED, OverloadedError),
        (Reason.TOO_MANY_GROUPS, OverloadedError),
        (Reason.TOO_MANY_ROOMS, OverloadedError),
        (Reason.SHARED_MEMORY_OFF, RefusedError),
    ],
)
def test_each_family_of_reasons_has_a_class(face: Face, reason: Reason, kind: type[RefusedError]) -> None:
    codes = {code.value[0]: code for code in grpc.StatusCode}
    error = refusal(face, reason, codes[reason.code])
    assert type(error) is kind
    assert error.code.value[0] == reason.code


def test_a_reason_of_a_later_version_is_a_refusal_like_any_other(face: Face) -> None:
    detail = StringValue(value="of a later version")
    error = refusal(face, "OF_A_LATER_VERSION", grpc.StatusCode.ABORTED, "no", detail)
    assert type(error) is RefusedError
    assert error.reason == "OF_A_LATER_VERSION"
    (packed,) = error.details
    assert StringValue.FromString(packed.value) == detail
    assert error.diagnostics() == "refused: OF_A_LATER_VERSION (ABORTED)\nno"


def test_a_refusal_without_the_detail_that_its_class_promises_is_a_plain_one(face: Face) -> None:
    error = refusal(face, "REVISION_CONFLICT", grpc.StatusCode.ABORTED)
    assert type(error) is RefusedError
    assert error.reason == Reason.REVISION_CONFLICT


def test_a_detail_that_cannot_be_read_does_not_hide_the_refusal(face: Face) -> None:
    # A standing route without a key makes no value.
    detail = errors_pb2.RevisionConflict(revision=9, standing_route=bootstrap_pb2.Route(page_size=64))
    error = refusal(face, "REVISION_CONFLICT", grpc.StatusCode.ABORTED, "revision is 9", detail)
    assert type(error) is RefusedError
    assert error.message == "revision is 9"


def test_details_that_are_no_status_do_not_hide_the_error(face: Face) -> None:
    def damaged(request: object, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "damaged")

    with (
        serving(bootstrap_servicer(RegisterRoute=Script([damaged]))) as address,
        pytest.raises(RefusedError) as raised,
    ):
        face.call(face.bootstrap(address), "register_route", ROUTE, LAUNCH)
    assert (raised.value.reason, raised.value.message) == ("", "damaged")
    assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_a_number_that_cannot_be_sent_is_refused_by_the_name_of_its_field(face: Face) -> None:
    bad = Route(KEY, 7, ParallelSizes(1, 1, 2, 1), "10.0.0.1", -1, 64)
    with pytest.raises(InvalidFieldsError, match=r"route\.rank_port"):
        face.call(face.bootstrap("127.0.0.1:1"), "register_route", bad, LAUNCH)


def test_every_reason_has_advice() -> None:
    assert set(ADVICE) == set(Reason)
    assert all(advice.endswith(".") for advice in ADVICE.values())


def test_every_error_is_an_interlock_error_and_explains_itself() -> None:
    kinds = [
        value
        for name, value in vars(interlock.client).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(kinds) == 22
    for kind in kinds:
        assert issubclass(kind, InterlockError)
        if not issubclass(kind, RefusedError):
            assert kind("what happened").diagnostics().startswith("what happened")


def test_an_error_survives_a_pickle_whole() -> None:
    error = ImageFailedError(
        "IMAGE_TRUNCATED",
        grpc.StatusCode.INVALID_ARGUMENT,
        "ends early",
        metadata={"a": "b"},
        field_violations=[("encoded", "ends early")],
        retry_delay=2.0,
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ImageFailedError
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_compare_and_swap_loop_reads_well() -> None:
    """What the SDK is for: lose, look at the detail, win."""
    conflict = errors_pb2.RevisionConflict(revision=9)
    script = Script(
        [
            refuses("REVISION_CONFLICT", grpc.StatusCode.ABORTED, "revision is 9", conflict),
            lambda request, context: bootstrap_pb2.RegisterRouteResponse(revision=request.expected_revision + 1),
        ]
    )
    with serving(bootstrap_servicer(RegisterRoute=script)) as address, BootstrapClient(address) as client:
        revision = 0
        while True:
            try:
                registered = client.register_route(ROUTE, LAUNCH, expected_revision=revision)
                break
            except RevisionConflictError as error:
                revision = error.conflict.revision
    assert registered.revision == 10
