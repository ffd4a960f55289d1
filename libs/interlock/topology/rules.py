"""The rules of registration: pure functions of topology, request and time.

Checks come in this order: validate; instance and incarnation; equal row; `expected_revision`; contract. A refused
request leaves nothing behind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from interlock.reasons import Reason
from interlock.topology.contract import (
    SharedValues,
    cut_apart,
    differences,
    shared_values,
    value_text,
)
from interlock.topology.limits import MAX_CLOCK_LEAD_NS, MAX_RANKS
from interlock.topology.rank_map import RankMap
from interlock.topology.routes import Routes
from interlock.topology.state import (
    Accepted,
    ContractMismatch,
    Departed,
    FieldMismatch,
    Refused,
    RevisionConflict,
    StaleIncarnation,
    StaleInstance,
    Topology,
    invalid_fields,
)
from interlock.topology.validation import (
    Fault,
    Faults,
    checked_route,
    incarnation_faults,
    instance_faults,
    key_faults,
    lease_ttl_faults,
)
from interlock.topology.values import Instance, RankKey, Route, SpecLayout


@dataclass(frozen=True, slots=True)
class RegisterRoute:
    """Asks to register one rank."""

    route: Route
    instance: Instance
    expected_revision: int | None = None
    """Refuse unless this is the current revision, or 0 and no route lives. None: no condition."""
    lease_ttl: int | None = None
    """Milliseconds that the route stays without being renewed. None: until it is removed."""


@dataclass(frozen=True, slots=True)
class DeregisterRoute:
    """Asks to remove the route of exactly this key, instance and incarnation. What is not held changes nothing."""

    key: RankKey
    instance: Instance
    incarnation: int


@dataclass(frozen=True, slots=True)
class ForceEpoch:
    """Drops all routes, starts an epoch that serves no instance, and sets the floor, also downwards."""

    floor: Instance | None
    """None: any instance is accepted from now on."""


@dataclass(frozen=True, slots=True)
class ExpireRoutes:
    """Removes the routes whose leases ran out, those of them that still stand. The same life may come back."""

    rows: tuple[tuple[RankKey, int], ...]
    """Key and incarnation of each."""


Request = RegisterRoute | DeregisterRoute | ForceEpoch | ExpireRoutes
Outcome = Accepted | Refused


def transition(topology: Topology, request: Request, now: int) -> Outcome:
    """The group after a request, or why it is refused.

    An accepted one counts the revision on by one, unless it changed nothing, or nothing but a lease.

    Args:
        topology: the group as it is.
        request: what is asked.
        now: Unix time in nanoseconds.
    """
    return transition_batch(topology, [request], now)[1][0]


def transition_batch(topology: Topology, requests: Sequence[Request], now: int) -> tuple[Topology, tuple[Outcome, ...]]:
    """The group after several requests, one after another, as one change of one revision.

    A refused request leaves the batch and nothing behind. At most one request may have an `expected_revision`, the
    first: the others of its batch would be held against a revision that they cannot see.

    Args:
        topology: the group as it is.
        requests: what is asked, in this order.
        now: Unix time in nanoseconds.

    Returns:
        The group afterwards, the very same object if nothing changed; and the outcome of each request.
    """
    changed = topology
    removed: list[Refused | int] = []
    for request in requests:
        before, outcome = changed, _changed(changed, request, now)
        if isinstance(outcome, Refused):
            removed.append(outcome)
            continue
        changed = outcome
        staying = len(changed.routes) if changed.epoch == before.epoch else 0
        removed.append(max(0, len(before.routes) - staying))
    if changed.epoch != topology.epoch or changed.routes is not topology.routes:
        changed = replace(changed, revision=_next_revision(topology.revision, now))
    return changed, tuple(each if isinstance(each, Refused) else Accepted(changed, each) for each in removed)


def _next_revision(revision: int, now: int) -> int:
    """A group with no history starts at the time in microseconds, so that a number from a lost life never matches."""
    return revision + 1 if revision else max(1, now // 1_000)


def _changed(topology: Topology, request: Request, now: int) -> Topology | Refused:
    """What the group holds after a request, its revision not yet counted on."""
    match request:
        case RegisterRoute():
            return _registered(topology, request, now)
        case DeregisterRoute():
            return _deregistered(topology, request)
        case ForceEpoch():
            return _forced(topology, request, now)
        case ExpireRoutes():
            standing = [
                (key, incarnation)
                for key, incarnation in request.rows
                if key in topology.routes and topology.routes[key].incarnation == incarnation
            ]
            return _without(topology, standing, deregistered=False)


def _registered(topology: Topology, request: RegisterRoute, now: int) -> Topology | Refused:
    instance = request.instance
    route, faults = checked_route(request.route)
    faults += tuple(instance_faults(instance, "instance"))
    if instance not in (topology.instance, topology.floor):
        # One that was accepted goes on, whatever this clock says by now: it was set back, or is another server's.
        faults += tuple(_clock_faults(instance, "instance", now))
    faults += tuple(_relabelled_faults(topology, instance))
    if request.lease_ttl is not None:
        faults += tuple(lease_ttl_faults(request.lease_ttl, "lease_ttl"))
    if faults:
        return invalid_fields(faults)

    if topology.floor is not None and instance < topology.floor:
        return Refused(
            Reason.STALE_INSTANCE,
            f"instance {instance} is older than {topology.floor}, which group {topology.group!r} accepted already",
            StaleInstance(topology.floor),
        )
    if instance != topology.instance:
        return _conflict(topology, request) or Topology(
            group=topology.group,
            revision=topology.revision,
            epoch=topology.epoch + 1,
            instance=instance,
            floor=instance,
            routes=Routes([route]),
            leases=_leases(RankMap(), route.key, request.lease_ttl),
        )

    newest = _newest_life(topology, route.key)
    if newest is not None and (
        route.incarnation < newest.incarnation or (route.incarnation == newest.incarnation and newest.deregistered)
    ):
        return Refused(
            Reason.STALE_INCARNATION,
            f"incarnation {route.incarnation} of rank {route.key} is over: {newest.incarnation} "
            + ("was deregistered" if newest.deregistered else "is registered"),
            StaleIncarnation(route.key, newest.incarnation, newest.deregistered),
        )
    standing = topology.routes.contract(without=route.key)
    if standing is not None:
        route = _with_shared_layout(route, standing)
    leases = _leases(topology.leases, route.key, request.lease_ttl)
    if topology.routes.get(route.key) == route:
        return topology if leases is topology.leases else replace(topology, leases=leases)
    if conflict := _conflict(topology, request):
        return conflict
    if standing is not None and (mismatch := _mismatch(topology, route.key, standing, shared_values(route))):
        return mismatch
    return replace(topology, routes=topology.routes.changed(registered=[route]), leases=leases)


def _leases(leases: RankMap[int], key: RankKey, ttl: int | None) -> RankMap[int]:
    """These leases with that of one key; the very same object if it is so already."""
    if leases.get(key) == ttl:
        return leases
    return leases.changed(removed=[key]) if ttl is None else leases.changed(put={key: ttl})


def _deregistered(topology: Topology, request: DeregisterRoute) -> Topology | Refused:
    if faults := deregister_faults(request):
        return invalid_fields(faults)
    standing = topology.routes.get(request.key)
    if standing is None or (topology.instance, standing.incarnation) != (request.instance, request.incarnation):
        # Nothing is remembered of a life that was never held: what a group remembers must not grow by such requests.
        return topology
    return _without(topology, [(request.key, request.incarnation)], deregistered=True)


def _without(topology: Topology, rows: Iterable[tuple[RankKey, int]], *, deregistered: bool) -> Topology:
    """The group without rows that stand, given by key and incarnation."""
    lives = {key: Departed(incarnation, deregistered) for key, incarnation in rows}
    if not lives:
        return topology
    departed = topology.departed.changed(put=lives)
    if len(departed) > MAX_RANKS:
        # Only a launch that changed its sizes over and over comes here: keys outside the present ones are forgotten.
        departed = RankMap((key, life) for key, life in departed.items() if topology.expects(key))
    return replace(
        topology,
        routes=topology.routes.changed(removed=lives),
        leases=topology.leases.changed(removed=lives) if topology.leases else topology.leases,
        departed=departed,
    )


def deregister_faults(request: DeregisterRoute) -> tuple[Fault, ...]:
    """What is wrong with a request to deregister, whatever the group holds."""
    return (
        *key_faults(request.key, "key"),
        *instance_faults(request.instance, "instance"),
        *incarnation_faults(request.incarnation, "incarnation"),
    )


def _forced(topology: Topology, request: ForceEpoch, now: int) -> Topology | Refused:
    if request.floor is not None:
        faults = (*instance_faults(request.floor, "floor"), *_clock_faults(request.floor, "floor", now))
        if faults:
            return invalid_fields(faults)
    return Topology(topology.group, topology.revision, topology.epoch + 1, instance=None, floor=request.floor)


def _clock_faults(instance: Instance, path: str, now: int) -> Faults:
    """A floor in the far future would shut out every launch to come."""
    if instance.started_at > now + MAX_CLOCK_LEAD_NS:
        yield (
            f"{path}.started_at",
            f"must be at most {MAX_CLOCK_LEAD_NS // 1_000_000_000} s ahead of the server's clock, {now}; "
            f"got {instance.started_at}",
        )


def _relabelled_faults(topology: Topology, instance: Instance) -> Faults:
    for known in (topology.instance, topology.floor):
        if known is not None and known.id == instance.id and known.started_at != instance.started_at:
            yield (
                "instance.started_at",
                f"instance {known} is known already; a new launch needs an id of its own; got {instance.started_at}",
            )
            return


def _with_shared_layout(route: Route, standing: SharedValues) -> Route:
    """The same route with the group's own layout object: the one large value, of which every rank brings a copy."""
    layout, shared = route.dsv41_spec_layout, standing.dsv41_spec_layout
    if isinstance(layout, SpecLayout) and layout is not shared and layout == shared:
        return replace(route, dsv41_spec_layout=shared)
    return route


def _newest_life(topology: Topology, key: RankKey) -> Departed | None:
    """The newest life of a rank in this epoch."""
    if standing := topology.routes.get(key):
        return Departed(standing.incarnation, deregistered=False)
    return topology.departed.get(key)


def _conflict(topology: Topology, request: RegisterRoute) -> Refused | None:
    expected = request.expected_revision
    if expected is None or expected == topology.revision or (expected == 0 and not topology.routes):
        return None
    return Refused(
        Reason.REVISION_CONFLICT,
        f"group {topology.group!r} is at revision {topology.revision}, not at {expected}",
        RevisionConflict(topology.revision, topology.epoch, topology.instance, topology.routes.get(request.route.key)),
    )


def _mismatch(topology: Topology, key: RankKey, standing: SharedValues, offered: SharedValues) -> Refused | None:
    """The refusal of values that break the contract of the other routes."""
    broken = differences(standing, offered)
    if not broken:
        return None
    others = topology.routes.changed(removed=[key])
    mismatches = [
        FieldMismatch(field, stands, offers, held_by=min(others.holders(field, stands)))
        for field, stands, offers in broken
    ]
    return Refused(
        Reason.CONTRACT_MISMATCH,
        f"rank {key} does not fit group {topology.group!r}: " + "; ".join(map(_mismatch_text, mismatches)),
        ContractMismatch(tuple(mismatches)),
    )


def _mismatch_text(mismatch: FieldMismatch) -> str:
    standing, offered = cut_apart(value_text(mismatch.standing_value), value_text(mismatch.offered_value), 80)
    return f"{mismatch.field} is {standing} on {mismatch.held_by}, but {offered} was offered"
