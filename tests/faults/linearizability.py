"""Whether a history could have come from one group that takes one request at a time.

Just-in-time linearization (Wing and Gong; Lowe, "Testing for linearizability"): go through the history in the order of
time and keep every state that the group can be in. A request takes effect at one moment between its invocation and
its answer; so when an answer comes, every kept state in which that request has not yet taken effect is carried on by
effects of open requests until it has, with exactly that answer. If no state is left, the history is not linearizable.
States that were reached before are not looked at again.

What is checked:

- **Requests** are linearizable, refusals and "already stands" included: all of them answer from the truth.
- **Revisions** follow one another without a gap; every change makes one, or shares that of concurrent requests for
  other keys, as the group commit allows. A revision is closed once anybody was told of it: who was invoked later
  cannot be part of it.
- **Unknown outcomes** may take effect at any time after their invocation, or never.
- **Reads** are stale by design, within a bound; so a read has no place of its own in real time. But what was read at
  a revision must be the state of the group when that revision was closed, whoever reads it, and the revision must
  have been reached when it was read. (That no reader goes back in time is for `watches` and `sessions` to check.)
- **Leases** may run out by themselves, but not before a TTL has passed since the invocation of the last registration
  or renewal that was acknowledged.
- **Ambiguous commits**: a server that got no answer from its store looks again and runs the rules again. So with
  `ambiguous_commits` a request may take effect first and be answered later, from the state that it finds then.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from faults.group_model import GroupState, answered, expired
from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    History,
    NeverHappened,
    Observation,
    Operation,
    Outcome,
    Register,
    Removed,
    Stands,
)
from interlock.topology import RankKey

MAX_STATES = 50_000
"""States looked at for one event before the check gives up; a healthy history needs a few dozen."""

_INVOKED, _OBSERVED, _ANSWERED = range(3)
"""Order of events of the same nanosecond: what may be concurrent counts as concurrent."""


class NotLinearizableError(AssertionError):
    """No order of the requests explains what the clients saw."""


class UndecidedError(AssertionError):
    """Too many orders to try. It counts as a failure: nothing was shown."""


class _Place(NamedTuple):
    """One way in which things can have gone so far. Operations are named by their index."""

    state: GroupState
    begun: frozenset[int]
    """Open operations that took effect once and were not answered since (ambiguous commits)."""
    done: frozenset[int]
    """Open operations that took effect, and are not to take effect again."""


class _Move(NamedTuple):
    """One operation's effect, as a next step."""

    place: _Place
    first: bool
    """It has an expected revision, so it can only come first in its revision."""
    opens: bool
    """It makes a revision of its own."""
    sure: bool
    """It has to come now or later in this very revision, and no other effect of it needs to come before."""


class _Event(NamedTuple):
    time: int
    kind: int
    index: int


def check_linearizable(history: History, start: GroupState, *, ambiguous_commits: bool = False) -> int:
    """Raises unless the history is linearizable.

    Args:
        history: what happened to the group, from `start` on.
        start: the group before the first operation.
        ambiguous_commits: the store may fail to answer, so that a server has to look again.

    Returns:
        How many states were looked at.

    Raises:
        NotLinearizableError: names the first event that cannot be explained, and the states that it met.
        UndecidedError: there are too many possible orders.
    """
    try:
        # Most histories are explained without requests of unknown outcome that took part in revisions which nobody
        # saw. To try all of those as well takes long: each may have, or not.
        return _Check(history, ambiguous_commits, lazy=True).run(start)
    except AssertionError:
        return _Check(history, ambiguous_commits, lazy=False).run(start)


class _Check:
    def __init__(self, history: History, ambiguous_commits: bool, *, lazy: bool) -> None:
        self._lazy = lazy
        self._group = history.group
        self._seed = history.seed
        self._operations = [
            operation for operation in history.operations if not isinstance(operation.outcome, NeverHappened)
        ]
        self._observations = sorted(history.observations, key=lambda each: each.time)
        self._ambiguous_commits = ambiguous_commits
        self._events = sorted(
            [_Event(each.invoked, _INVOKED, index) for index, each in enumerate(self._operations)]
            + [
                _Event(each.returned, _ANSWERED, index)
                for index, each in enumerate(self._operations)
                if each.returned is not None
            ]
            + [_Event(each.time, _OBSERVED, index) for index, each in enumerate(self._observations)]
        )
        self._seen: dict[int, list[Observation]] = defaultdict(list)
        for observation in self._observations:
            self._seen[observation.revision].append(observation)
        self._contents = {each.revision: each.content for each in self._observations if each.content is not None}
        self._highest = max(
            (revision for revision in (*self._seen, *map(_revision, self._operations)) if revision is not None),
            default=0,
        )
        self._caps = self._revision_caps()
        self._refreshes = _refreshes(history)
        self._open: set[int] = set()
        self._agreed: dict[GroupState, bool] = {}
        self._now = self._before = self._cap = 0
        self._looked_at = 0

    def run(self, start: GroupState) -> int:
        places = {_Place(start, frozenset(), frozenset())}
        for event, cap in zip(self._events, self._caps, strict=True):
            self._before, self._now, self._cap = self._now, event.time, cap
            match event.kind:
                case 0:
                    self._open.add(event.index)
                    continue
                case 1:
                    observation = self._observations[event.index]
                    after = self._until_reached(places, observation.revision)
                    what: Observation | Operation = observation
                case _:
                    what = self._operations[event.index]
                    after = self._until_answered(places, event.index)
                    self._open.discard(event.index)
            if not after:
                raise NotLinearizableError(self._explanation(event, what, places))
            places = after
        return self._looked_at

    # Going on until an event is explained

    def _until_answered(self, places: set[_Place], index: int) -> set[_Place]:
        """Every place in which this operation has taken effect with its answer, and what it named is closed."""
        revision = _revision(self._operations[index])
        reached = self._explore(places, lambda place: index in place.done, revision)
        if revision is not None:
            reached = self._closed(reached, revision)
        gone = frozenset({index})
        return {place._replace(begun=place.begun - gone, done=place.done - gone) for place in reached}

    def _until_reached(self, places: set[_Place], revision: int) -> set[_Place]:
        """Every place that has come to this revision; a place that stands at it has it closed."""
        return self._closed(self._explore(places, lambda place: place.state.revision >= revision, revision), revision)

    def _closed(self, places: set[_Place], revision: int) -> set[_Place]:
        """The places with that revision closed, after whoever else can have been part of it."""
        ready = {place for place in places if place.state.revision > revision or place.state.changed is None}
        still_open = places - ready
        joined = self._explore(still_open, lambda _: False, revision, visit_all=True) if still_open else set()
        for place in joined:
            if place.state.revision == revision and self._agrees(place.state):
                ready.add(place._replace(state=place.state.closed()))
        return ready

    def _explore(
        self,
        places: set[_Place],
        is_there: Callable[[_Place], bool],
        highest: int | None,
        *,
        visit_all: bool = False,
    ) -> set[_Place]:
        """Every place that is there, reached by as few steps as needed; or every place there is a way to."""
        limit = self._cap if highest is None else min(self._cap, highest)
        found: set[_Place] = set()
        seen = set(places)
        waiting = list(places)
        looked_at = 0
        while waiting:
            place = waiting.pop()
            looked_at += 1
            if looked_at > MAX_STATES:
                raise UndecidedError(f"{self._group} (seed {self._seed}): over {MAX_STATES} states for one event")
            if is_there(place):
                found.add(place)
                continue
            for step in self._steps(place, limit):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        self._looked_at += looked_at
        return seen if visit_all else found

    # One step

    def _steps(self, place: _Place, limit: int) -> Iterator[_Place]:
        state = place.state
        unanswered = [(index, *answered(state, self._operations[index].request)) for index in self._open - place.done]
        explained = {
            index
            for index, told, after in unanswered
            if after is state and self._changes_nothing(self._operations[index], told, place)
        }
        if explained:
            # Explained here, for nothing: to put it off could not help.
            yield place._replace(done=place.done | explained)
            return
        moves = [
            move
            for index, told, after in sorted(unanswered, key=lambda each: each[0])
            if after is not state
            for move in self._moves_of(place, index, told, after, limit)
        ]
        others_go_first = any(move.first for move in moves)
        for move in moves:
            if move.sure and (move.first or not move.opens or not others_go_first):
                # It has to come in this revision, and whatever else comes in it can follow: no other order is needed.
                yield move.place
                return
        yield from (move.place for move in moves)
        for key, row in state.content.rows:
            if self._may_expire((key, state.content.launch, row.incarnation)):
                for after in self._with_revision(state, expired(state, key), key, limit):
                    yield place._replace(state=after)

    def _moves_of(self, place: _Place, index: int, told: Outcome, after: GroupState, limit: int) -> Iterator[_Move]:
        """What can come of an operation that changes the state."""
        operation = self._operations[index]
        before = place.state
        key = None if isinstance(operation.request, Force) else operation.request.key
        first = isinstance(operation.request, Register) and operation.request.expected_revision is not None
        unknown = operation.outcome is None
        may_come_again = self._ambiguous_commits and index not in place.begun
        for state in self._with_revision(before, after, key, limit, first=first, unknown=unknown):
            opens = state.revision != before.revision
            seen = self._contents.get(state.revision)
            answer_fits = operation.outcome == _at_revision(told, state.revision)
            shown = unknown and isinstance(operation.request, Register) and seen is not None
            sure = (
                state.content.epoch == before.content.epoch
                and (seen is None or seen.epoch == state.content.epoch)
                and (not opens or before.changed is None or before.revision in self._contents)
                and (answer_fits or shown)
            )
            if answer_fits or (unknown and not may_come_again):
                yield _Move(place._replace(state=state, done=place.done | {index}), first, opens, sure)
            elif may_come_again:
                begun = place._replace(state=state, begun=place.begun | {index})
                yield _Move(begun, first, opens, sure and unknown)

    def _changes_nothing(self, operation: Operation, told: Outcome, place: _Place) -> bool:
        """Whether the answer is what the rules say where the request changes nothing."""
        if told == operation.outcome:
            return True
        # A deregistration that had to look again and finds its row gone counts it as removed.
        return (
            self._ambiguous_commits
            and isinstance(operation.request, Deregister)
            and isinstance(told, Removed)
            and operation.outcome == Removed(True, told.revision)
            and any(
                (life.key, life.incarnation) == (operation.request.key, operation.request.incarnation)
                for life in place.state.departed
            )
        )

    def _with_revision(
        self,
        before: GroupState,
        after: GroupState,
        key: RankKey | None,
        limit: int,
        *,
        first: bool = False,
        unknown: bool = False,
    ) -> Iterator[GroupState]:
        """The state after a change: one that joins the open revision, and one with a revision of its own."""
        put_off = unknown and self._lazy and before.revision not in self._contents
        if before.changed is not None and key not in before.changed and not first and not put_off:
            joined = after._replace(changed=before.changed | {key})
            if self._can_become_what_was_seen(joined, key):
                yield joined
        if before.revision < limit and self._agrees(before):
            content = after.content._replace(revision=before.revision + 1)
            opened = after._replace(content=content, changed=frozenset({key}))
            if self._can_become_what_was_seen(opened, key):
                yield opened

    def _can_become_what_was_seen(self, state: GroupState, key: RankKey | None) -> bool:
        """A key changes once in a revision: so its row must be what everybody saw at that revision."""
        seen = self._contents.get(state.revision)
        if seen is None or seen.epoch > state.content.epoch:
            return True
        return seen.epoch == state.content.epoch and dict(seen.rows).get(key) == dict(state.content.rows).get(key)

    def _agrees(self, state: GroupState) -> bool:
        """Whether all who ever saw the present revision saw this content: it is about to be closed or left."""
        agreed = self._agreed.get(state)
        if agreed is None:
            agreed = all(observation.agrees(state.content) for observation in self._seen.get(state.revision, ()))
            self._agreed[state] = agreed
        return agreed

    def _may_expire(self, life: tuple[RankKey, int | None, int]) -> bool:
        refreshes = self._refreshes.get(life)
        if refreshes is None:
            return False
        # Those that were acknowledged before the event ahead of this one certainly came before the expiry.
        known = bisect_right(refreshes.returned, self._before)
        return refreshes.earliest_end[known] <= self._now

    # What is known beforehand

    def _revision_caps(self) -> list[int]:
        """The highest revision that the group can have at each event: answers of later requests say so."""
        caps: list[int] = []
        cap = self._highest
        for event in reversed(self._events):
            caps.append(cap)
            if event.kind == _INVOKED:
                revision = _revision(self._operations[event.index])
                cap = cap if revision is None else min(cap, revision)
        return caps[::-1]

    def _explanation(self, event: _Event, what: Observation | Operation, places: set[_Place]) -> str:
        states = sorted({place.state for place in places}, key=str)[:5]
        open_operations = [self._operations[index] for index in sorted(self._open)]
        lines = [
            f"group {self._group} (seed {self._seed}) is not linearizable: nothing explains, at {event.time},",
            f"  {what}",
            f"after {len(places)} possible states; {len(states)} of them:",
            *(f"  {state}" for state in states),
            f"with {len(open_operations)} operations open:",
            *(f"  {operation}" for operation in open_operations),
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Refreshes:
    """When the lease of one life was granted or renewed for certain, in the order in which that was acknowledged."""

    returned: list[int]
    earliest_end: list[int]
    """At [n], when n of them are acknowledged: the earliest time at which the lease can be over."""


def _refreshes(history: History) -> dict[tuple[RankKey, int | None, int], _Refreshes]:
    """Of each life that has a lease. A life always asks for the same TTL."""
    ttls: dict[tuple[RankKey, int | None, int], int] = {}
    first: dict[tuple[RankKey, int | None, int], int] = {}
    refreshed: dict[tuple[RankKey, int | None, int], list[tuple[int, int]]] = defaultdict(list)
    for operation in history.operations:
        request = operation.request
        if isinstance(request, Register) and request.ttl is not None:
            life = (request.key, request.launch, request.incarnation)
            ttls[life] = round(request.ttl * 1e9)
            first.setdefault(life, operation.invoked)
            if isinstance(operation.outcome, Stands):
                assert operation.returned is not None
                refreshed[life].append((operation.returned, operation.invoked))
    for renewal in history.renewals:
        refreshed[renewal.key, renewal.launch, renewal.incarnation].append((renewal.returned, renewal.invoked))
    found = {}
    for life, ttl in ttls.items():
        ends = [first[life] + ttl]
        acknowledged = sorted(refreshed[life])
        for _, invoked in acknowledged:
            ends.append(max(ends[-1], invoked + ttl))
        found[life] = _Refreshes([returned for returned, _ in acknowledged], ends)
    return found


def _revision(operation: Operation) -> int | None:
    """The revision that an answer names."""
    match operation.outcome:
        case Stands() | Removed() | Forced() | Conflict():
            return operation.outcome.revision
    return None


def _at_revision(told: Outcome, revision: int) -> Outcome:
    """The answer to a change, with the revision that the change got."""
    match told:
        case Stands(_, epoch):
            return Stands(revision, epoch)
        case Forced(_, epoch):
            return Forced(revision, epoch)
        case Removed(removed, _):
            return Removed(removed, revision)
    raise AssertionError(f"{told} changes nothing")
