"""What changed between two revisions of a group, and how a watcher follows.

Events are the difference of two committed revisions, so whoever derives them gets the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from interlock.topology.routes import Routes
from interlock.topology.state import Topology
from interlock.topology.values import Instance, RankKey, Route


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A new epoch began: every route of the one before is gone."""

    epoch: int
    instance: Instance | None
    """None: forced by an admin, no rank registered yet."""


@dataclass(frozen=True, slots=True)
class RouteRemoved:
    """A route went."""

    key: RankKey
    incarnation: int


@dataclass(frozen=True, slots=True)
class RouteRegistered:
    """A route came, or replaced the one of the same key."""

    route: Route


Event = EpochStarted | RouteRemoved | RouteRegistered


def changes(before: Topology, after: Topology) -> tuple[Event, ...]:
    """What made `before` into `after`, in the order to apply it: epoch start, removals, registrations, by key."""
    new_epoch = after.epoch != before.epoch
    removed, registered = after.routes.since(Routes() if new_epoch else before.routes)
    return (
        *([EpochStarted(after.epoch, after.instance)] if new_epoch else []),
        *(RouteRemoved(key, before.routes[key].incarnation) for key in removed),
        *map(RouteRegistered, registered),
    )


def apply(routes: Routes, events: Iterable[Event]) -> Routes:
    """The routes after some events, in their order, as a watcher keeps them."""
    pending: dict[RankKey, Route | None] = {}
    for event in events:
        match event:
            case EpochStarted():
                routes = Routes()
                pending.clear()
            case RouteRemoved():
                pending[event.key] = None
            case RouteRegistered():
                pending[event.route.key] = event.route
    return routes.changed(
        removed=[key for key, route in pending.items() if route is None],
        registered=[route for route in pending.values() if route is not None],
    )
