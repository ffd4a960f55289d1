"""The refusals of the Bootstrap service."""

from collections.abc import Callable
from typing import TypeVar

from interlock.reasons import Reason
from interlock.serving import Refusal
from interlock.topology import FieldViolations, InvalidFieldsError, RankKey, Refused, Topology, undeclared_count
from interlock.topology.detail_messages import not_ready_detail, refusal_details

M = TypeVar("M")
T = TypeVar("T")


def refusal_of(refused: Refused) -> Refusal:
    """What the rules refused, with its field violations or typed details."""
    violations = refused.detail.violations if isinstance(refused.detail, FieldViolations) else ()
    return Refusal(refused.reason, refused.message, violations=violations, details=refusal_details(refused))


def decoded(parse: Callable[[M], T], message: M) -> T:
    """What `parse` makes of a request; a request that it can make nothing of is refused."""
    try:
        return parse(message)
    except InvalidFieldsError as error:
        raise refusal_of(error.refused) from None


def invalid_field(field: str, fault: str) -> Refusal:
    """One field at fault."""
    return Refusal(Reason.INVALID_FIELD, f"{field}: {fault}", violations=[(field, fault)])


def not_ready(topology: Topology) -> Refusal:
    """The group lacks ranks, or declarations; the detail names the keys."""
    undeclared = undeclared_count(topology)
    return Refusal(
        Reason.NOT_READY,
        f"group {topology.group!r} is not ready: {topology.registered} of {topology.expected or 'unknown'} ranks are "
        "registered" + (f", and {undeclared} of them have yet to declare what others declared" if undeclared else ""),
        metadata={"group": topology.group},
        details=[not_ready_detail(topology)],
    )


def unknown_rank(topology: Topology, key: RankKey) -> Refusal:
    """The key is outside the group's sizes."""
    return Refusal(
        Reason.UNKNOWN_RANK,
        f"group {topology.group!r} has no rank {key}: it is outside the group's sizes",
        metadata={"group": topology.group},
    )


def draining() -> Refusal:
    """The server is about to stop."""
    return Refusal(Reason.DRAINING, "this server is about to stop; go on at another one")
