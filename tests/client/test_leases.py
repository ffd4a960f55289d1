"""What the client's book of leases asks for, when, and what it makes of the answers; on a clock of the test's own."""

from itertools import chain

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.client import (
    DeadlineError,
    InterlockError,
    RefusedError,
    Registered,
    RegistrationState,
    RetryPolicy,
    UnexpectedAnswerError,
    UnreachableError,
)
from interlock.client._internal.leases import MAX_REGISTERING, MAX_RENEWALS, HeldLease, LeaseBook
from interlock.topology import Instance, ParallelSizes, RankKey, Route

LAUNCH = Instance("launch", 1_000)
LOST = UnreachableError("gone")
RANKS = 2_048


class Book(LeaseBook):
    """A book with its clock and its dice, which show 0 until told otherwise: a third exactly, and no pauses."""

    def __init__(self, patience: float = 10.0) -> None:
        self.now, self.dice = 1_000.0, 0.0
        retry = RetryPolicy(first_delay=0.5, longest_delay=4.0)
        super().__init__(retry, patience, clock=lambda: self.now, draw=lambda: self.dice)

    def with_rank(self, tp: int, ttl: float = 30.0) -> HeldLease:
        """A rank that was registered just now."""
        route = Route(RankKey(0, 0, tp, 0), 7, ParallelSizes(1, 1, RANKS, 1), "10.0.0.1", 9000, 64)
        held = HeldLease(route, LAUNCH, "prefill", ttl, on_end=lambda: ended.append(held))
        self.hold(held, registered(ttl))
        return held


ended: list[HeldLease] = []


@pytest.fixture(autouse=True)
def nobody_ended() -> None:
    ended.clear()


def registered(ttl: float, revision: int = 5) -> Registered:
    return Registered(revision, 1, 1, RANKS, False, ttl)


def asked(message: pb.KeepAliveRequest | None) -> list[int]:
    """TP ranks of the leases to renew."""
    return [] if message is None else [lease.key.tp for lease in message.leases]


def answer(message: pb.KeepAliveRequest | None, *ttls: float) -> pb.KeepAliveResponse:
    """What a good server answers: one TTL for each, or the same for all."""
    assert message is not None
    each = ttls if len(ttls) > 1 else ttls * len(message.leases)
    return pb.KeepAliveResponse(
        renewals=[
            pb.LeaseRenewal(lease=lease, ttl=Duration(nanos=round(ttl * 1e9) % 10**9, seconds=int(ttl)))
            for lease, ttl in zip(message.leases, each, strict=True)
        ]
    )


def refusal(reason: str, code: grpc.StatusCode, retry_delay: float | None = None) -> RefusedError:
    return RefusedError(reason, code, "no", retry_delay=retry_delay)


def test_a_lease_is_renewed_at_a_third_of_its_time_and_names_what_was_registered() -> None:
    book = Book()
    held = book.with_rank(3, ttl=30.0)
    assert held.state is RegistrationState.REGISTERED
    assert book.seconds_to_next() == 10.0
    book.now += 9.5
    assert book.next_message() is None
    book.now += 0.5
    message = book.next_message()
    assert message == pb.KeepAliveRequest(
        leases=[
            pb.LeaseRef(
                group="prefill",
                key=pb.RankKey(tp=3),
                instance=pb.Instance(id="launch", started_at=1_000),
                incarnation=7,
            )
        ]
    )
    book.now += 1.0
    book.receive(answer(message, 30.0))
    # Counted from when it was sent: nobody knows when the server counted.
    assert book.seconds_to_next() == 9.0


def test_it_is_renewed_up_to_a_fifth_earlier_as_the_dice_say() -> None:
    book = Book()
    book.dice = 1.0
    book.with_rank(0, ttl=30.0)
    assert book.seconds_to_next() == 8.0


def test_a_lease_of_another_length_than_was_asked_for_counts_as_it_was_granted() -> None:
    book = Book()
    book.with_rank(0, ttl=30.0)
    book.now += 10
    book.receive(answer(book.next_message(), 6.0))
    assert book.seconds_to_next() == 2.0


def test_a_lease_so_short_that_renewing_would_never_rest_is_still_renewed_at_a_bounded_pace() -> None:
    book = Book()
    book.with_rank(0, ttl=30.0)
    book.now += 10
    book.receive(answer(book.next_message(), 1e-9))
    assert book.seconds_to_next() == pytest.approx(0.1)


def test_leases_that_are_nearly_due_share_a_message_and_stay_together() -> None:
    book = Book()
    for tp in range(100):
        book.with_rank(tp)
        book.now += 0.02
    book.now += 8.01
    message = book.next_message()
    assert asked(message) == list(range(100))
    book.dice = 0.3
    book.receive(answer(message, 30.0))
    book.now += 9.41
    assert asked(book.next_message()) == list(range(100))


def test_a_lease_that_is_not_nearly_due_is_left_alone() -> None:
    book = Book()
    book.with_rank(0)
    book.now += 5
    book.with_rank(1)
    book.now += 5
    assert asked(book.next_message()) == [0]


def test_more_leases_than_fit_go_in_several_messages_one_after_the_other() -> None:
    book = Book()
    for tp in range(600):
        book.with_rank(tp)
    book.now += 10
    renewed: list[list[int]] = []
    while (message := book.next_message()) is not None:
        assert book.next_message() is None
        renewed.append(asked(message))
        book.receive(answer(message, 30.0))
    assert [len(part) for part in renewed] == [MAX_RENEWALS, MAX_RENEWALS, 600 - 2 * MAX_RENEWALS]
    assert sorted(chain.from_iterable(renewed)) == list(range(600))


def test_the_largest_message_fits_into_the_first_window_of_http2() -> None:
    route = Route(RankKey(65_535, 0, 0, 0), 2**64 - 1, ParallelSizes(65_536, 1, 1, 1), "10.0.0.1", 9000, 64)
    book = Book()
    for _ in range(MAX_RENEWALS):
        held = HeldLease(route, Instance("i" * 128, 2**64 - 1), "g" * 63, 30.0, on_end=lambda: None)
        book.hold(held, registered(30.0))
    book.now += 10
    message = book.next_message()
    assert message is not None
    assert message.ByteSize() < 65_535


def test_an_unknown_lease_makes_its_rank_register_again_and_that_alone() -> None:
    book = Book()
    first, second = book.with_rank(0), book.with_rank(1)
    book.now += 10
    book.receive(answer(book.next_message(), 30.0, 0.0))
    assert (first.state, second.state) == (RegistrationState.REGISTERED, RegistrationState.RECOVERING)
    assert book.next_registration() is second
    assert book.next_registration() is None
    book.now += 1
    book.registered(second, registered(30.0, revision=9))
    assert (second.state, second.registered) == (RegistrationState.REGISTERED, registered(30.0, revision=9))
    assert book.seconds_to_next() == 9.0


def test_only_so_many_register_again_at_once() -> None:
    book = Book()
    for tp in range(MAX_REGISTERING + 1):
        book.with_rank(tp)
    book.now += 10
    book.receive(answer(book.next_message(), 0.0))
    under_way = [book.next_registration() for _ in range(MAX_REGISTERING)]
    assert book.next_registration() is None
    assert under_way[0] is not None
    book.registered(under_way[0], registered(30.0))
    assert book.next_registration() is not None
    assert book.next_registration() is None


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("nobody there"),
        DeadlineError("late"),
        UnexpectedAnswerError("odd"),
        refusal("DRAINING", grpc.StatusCode.UNAVAILABLE),
        refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE),
        refusal("STORE_CONTENDED", grpc.StatusCode.UNAVAILABLE),
        refusal("STORE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED),
        refusal("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED),
        refusal("INTERNAL", grpc.StatusCode.INTERNAL),
        refusal("", grpc.StatusCode.INTERNAL),
        refusal("", grpc.StatusCode.UNIMPLEMENTED),  # a proxy that lost its way, not a server of ours
    ],
)
def test_what_time_may_mend_is_tried_again_after_a_pause(error: InterlockError) -> None:
    book = Book()
    held = book.with_rank(0)
    book.now += 10
    book.receive(answer(book.next_message(), 0.0))
    for pause in (0.5, 1.0, 2.0, 4.0, 4.0):
        assert book.next_registration() is held
        book.dice = 1.0
        book.failed(held, error)
        assert (held.state, held.error) == (RegistrationState.RECOVERING, error)
        assert book.seconds_to_next() == pause
        assert book.next_message() is None
        book.now += pause
        # By a renewal: the lost answer may have been a success.
        book.receive(answer(book.next_message(), 0.0))
    assert ended == []


def test_a_pause_that_the_server_asks_for_comes_on_top_and_is_bounded() -> None:
    book = Book()
    held = book.with_rank(0)
    for asked_for, pause in ((3.0, 3.0), (3_600.0, 30.0)):
        book.now += 100
        book.receive(answer(book.next_message(), 0.0))
        assert book.next_registration() is held
        book.failed(held, refusal("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, asked_for))
        assert book.seconds_to_next() == pause
    assert book.stream_lost(refusal("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, 2.0)) == 2.0


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("STALE_INSTANCE", grpc.StatusCode.FAILED_PRECONDITION),
        ("STALE_INCARNATION", grpc.StatusCode.FAILED_PRECONDITION),
        ("CONTRACT_MISMATCH", grpc.StatusCode.FAILED_PRECONDITION),
        ("INVALID_FIELD", grpc.StatusCode.INVALID_ARGUMENT),
        ("UNIMPLEMENTED", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_time_does_not_mend_ends_that_registration_and_no_other(reason: str, code: grpc.StatusCode) -> None:
    book = Book()
    lost, other = book.with_rank(0), book.with_rank(1)
    book.now += 10
    book.receive(answer(book.next_message(), 0.0, 30.0))
    assert book.next_registration() is lost
    error = refusal(reason, code)
    book.failed(lost, error)
    assert (lost.state, lost.error, ended) == (RegistrationState.LOST, error, [lost])
    assert other.state is RegistrationState.REGISTERED
    book.release(lost)
    assert (lost.state, ended) == (RegistrationState.LOST, [lost])
    book.now += 10
    assert asked(book.next_message()) == [1]


def test_every_lease_is_due_at_once_when_a_stream_opens() -> None:
    book = Book()
    book.with_rank(0)
    book.with_rank(1, ttl=3_600.0)
    book.stream_opened()
    assert sorted(asked(book.next_message())) == [0, 1]


def test_so_it_is_after_a_stream_was_lost() -> None:
    book = Book()
    first, second = book.with_rank(0), book.with_rank(1, ttl=3_600.0)
    book.now += 10
    assert asked(book.next_message()) == [0]
    assert book.stream_lost(LOST) == 0.0
    assert {first.state, second.state} == {RegistrationState.RECOVERING}
    assert first.error is LOST
    book.stream_opened()
    message = book.next_message()
    assert sorted(asked(message)) == [0, 1]
    book.receive(answer(message, 30.0))
    assert (first.state, first.error) == (RegistrationState.REGISTERED, None)


def test_pauses_between_streams_grow_until_an_answer_comes_and_never_end() -> None:
    book = Book()
    book.with_rank(0)
    book.dice = 1.0
    assert [book.stream_lost(LOST) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    book.stream_opened()
    book.receive(answer(book.next_message(), 30.0))
    assert book.stream_lost(LOST) == 0.5


def test_a_rank_that_waited_to_register_when_the_stream_was_lost_is_renewed_first() -> None:
    book = Book()
    held = book.with_rank(0)
    book.now += 10
    book.receive(answer(book.next_message(), 0.0))
    book.stream_lost(LOST)
    book.stream_opened()
    assert book.next_registration() is None
    assert asked(book.next_message()) == [0]
    assert held.state is RegistrationState.RECOVERING


def test_a_rank_that_registers_when_the_stream_is_lost_is_not_asked_for_twice() -> None:
    book = Book()
    held = book.with_rank(0)
    book.now += 10
    book.receive(answer(book.next_message(), 0.0))
    assert book.next_registration() is held
    book.stream_lost(LOST)
    book.stream_opened()
    assert book.next_message() is None
    assert book.seconds_to_next() is None
    book.registered(held, registered(30.0))
    assert held.state is RegistrationState.REGISTERED


@pytest.mark.parametrize(("ttl", "patience", "seconds"), [(30.0, 60.0, 10.0), (30.0, 4.0, 4.0), (1.0, 60.0, 1.0)])
def test_an_answer_is_waited_for_a_third_of_the_lease_but_not_forever_nor_hardly(
    ttl: float, patience: float, seconds: float
) -> None:
    book = Book(patience)
    book.with_rank(0, ttl)
    book.now += ttl
    assert book.next_message() is not None
    assert not book.overdue()
    assert book.seconds_to_next() == pytest.approx(seconds)
    book.now += seconds
    assert book.overdue()
    book.stream_lost(LOST)
    assert not book.overdue()


def test_answers_that_do_not_go_with_what_was_asked_are_refused() -> None:
    book = Book()
    book.with_rank(0)
    book.with_rank(1)
    with pytest.raises(UnexpectedAnswerError):
        book.receive(pb.KeepAliveResponse())
    book.now += 10
    message = book.next_message()
    good = answer(message, 30.0)
    for bad in (
        pb.KeepAliveResponse(),
        pb.KeepAliveResponse(renewals=good.renewals[:1]),
        pb.KeepAliveResponse(renewals=[*good.renewals, good.renewals[0]]),
        pb.KeepAliveResponse(renewals=reversed(good.renewals)),
    ):
        with pytest.raises(UnexpectedAnswerError):
            book.receive(bad)
    book.receive(good)
    with pytest.raises(UnexpectedAnswerError):
        book.receive(good)


def test_what_was_left_is_forgotten_whatever_comes_in_for_it() -> None:
    book = Book()
    asked_for, registering, waiting, kept = (book.with_rank(tp) for tp in range(4))
    book.now += 10
    message = book.next_message()
    book.release(asked_for)
    book.receive(answer(message, 30.0, 0.0, 0.0, 30.0))
    assert book.next_registration() is registering
    book.release(registering)
    book.release(waiting)
    assert book.next_registration() is None
    book.registered(registering, registered(30.0))
    book.failed(registering, LOST)
    assert {one.state for one in (asked_for, registering, waiting)} == {RegistrationState.ENDED}
    assert ended == [asked_for, registering, waiting]
    assert not book.empty
    book.release_all()
    assert (book.empty, kept.state, ended[3:]) == (True, RegistrationState.ENDED, [kept])
    assert book.seconds_to_next() is None
