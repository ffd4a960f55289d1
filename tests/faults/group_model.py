"""The group as a sequential machine: what each request must be told if nothing else happened at the same time.

Written from the rules in plain words and not from the server's code, so that the two check each other. It knows one
value of the contract (the page size) and launches by number.
"""

from typing import NamedTuple

from faults.histories import (
    Conflict,
    Deregister,
    Force,
    Forced,
    GroupContent,
    Mismatch,
    Outcome,
    Register,
    Removed,
    Request,
    Row,
    StaleLaunch,
    StaleLife,
    Stands,
)
from interlock.topology import RankKey


class Life(NamedTuple):
    """The last life that left of one key."""

    key: RankKey
    incarnation: int
    deregistered: bool


class GroupState(NamedTuple):
    """All that decides what the next request is told."""

    content: GroupContent
    departed: frozenset[Life] = frozenset()
    changed: frozenset[RankKey | None] | None = None
    """Keys that the current revision changed, while more requests may still join it; None: the revision is closed.

    Concurrent requests share a commit and a revision, each with another key. A forced epoch has no key.
    """

    @property
    def revision(self) -> int:
        return self.content.revision

    def closed(self) -> "GroupState":
        """The same with its revision closed: somebody was told of it, so it is committed."""
        return self if self.changed is None else self._replace(changed=None)


def empty(revision: int) -> GroupState:
    """A group before its first change; `revision` is the one that the change will follow."""
    return GroupState(GroupContent(revision, 0, None, None, frozenset()))


def answered(state: GroupState, request: Request) -> tuple[Outcome, GroupState]:
    """What a request is told now, and the state after it.

    Its revision is not counted on yet: whether a change joins the current revision or makes a new one is the
    caller's to try. The very same state: nothing changed.
    """
    match request:
        case Register():
            return _registered(state, request)
        case Deregister():
            return _deregistered(state, request)
        case Force():
            content = state.content
            forced = content._replace(epoch=content.epoch + 1, launch=None, floor=request.floor, rows=frozenset())
            return Forced(content.revision, forced.epoch), state._replace(content=forced, departed=frozenset())


def _registered(state: GroupState, request: Register) -> tuple[Outcome, GroupState]:
    content = state.content
    rows = dict(content.rows)
    row = Row(request.incarnation, request.port, request.page_size)
    expected = request.expected_revision
    conflict = None
    if expected is not None and expected != content.revision and not (expected == 0 and not rows):
        conflict = Conflict(content.revision, content.epoch, content.launch, rows.get(request.key))

    if content.floor is not None and request.launch < content.floor:
        return StaleLaunch(content.floor), state
    if request.launch != content.launch:
        if conflict:
            return conflict, state
        epoch = content.epoch + 1
        launched = GroupContent(
            content.revision, epoch, request.launch, request.launch, frozenset({(request.key, row)})
        )
        return Stands(content.revision, epoch), state._replace(content=launched, departed=frozenset())

    standing = rows.get(request.key)
    newest = next((life for life in state.departed if life.key == request.key), None)
    if standing is not None:
        newest = Life(request.key, standing.incarnation, deregistered=False)
    if newest is not None and (
        request.incarnation < newest.incarnation or (request.incarnation == newest.incarnation and newest.deregistered)
    ):
        return StaleLife(newest.incarnation, newest.deregistered), state
    if standing == row:
        return Stands(content.revision, content.epoch), state
    if conflict:
        return conflict, state
    others = {other.page_size for key, other in rows.items() if key != request.key}
    if others and request.page_size not in others:
        return Mismatch(min(others)), state
    changed = content._replace(rows=frozenset({**rows, request.key: row}.items()))
    return Stands(content.revision, content.epoch), state._replace(content=changed)


def _deregistered(state: GroupState, request: Deregister) -> tuple[Outcome, GroupState]:
    content = state.content
    standing = dict(content.rows).get(request.key)
    if standing is None or (content.launch, standing.incarnation) != (request.launch, request.incarnation):
        return Removed(False, content.revision), state
    return Removed(True, content.revision), _left(state, request.key, deregistered=True)


def expired(state: GroupState, key: RankKey) -> GroupState:
    """The state after the lease of a standing row ran out, its revision not counted on yet."""
    return _left(state, key, deregistered=False)


def _left(state: GroupState, key: RankKey, *, deregistered: bool) -> GroupState:
    row = dict(state.content.rows)[key]
    content = state.content._replace(rows=state.content.rows - {(key, row)})
    others = frozenset(life for life in state.departed if life.key != key)
    return state._replace(content=content, departed=others | {Life(key, row.incarnation, deregistered)})
