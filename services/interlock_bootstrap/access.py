"""Who may call which method of the Bootstrap service, and which groups a request is about."""

from collections.abc import Iterator
from typing import Any

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.serving.access import Rule
from interlock.serving.credentials import Role
from interlock.topology.validation import DEFAULT_GROUP

_READERS = frozenset({Role.READ, Role.REGISTER, Role.ADMIN})
_WRITERS = frozenset({Role.REGISTER, Role.ADMIN})


def _group(request: Any) -> Iterator[str]:
    yield request.group or DEFAULT_GROUP


def _groups_of_leases(request: bootstrap_pb2.KeepAliveRequest) -> Iterator[str]:
    for lease in request.leases:
        yield lease.group or DEFAULT_GROUP


_READ = Rule(_READERS, _group)
_WRITE = Rule(_WRITERS, _group)

RULES = {
    "RegisterRoute": _WRITE,
    "DeregisterRoute": _WRITE,
    "KeepAlive": Rule(_WRITERS, _groups_of_leases),
    "GetPrefillServerInfo": _READ,
    "GetRankInfo": _READ,
    "ListGroups": Rule(_READERS),  # answers only the caller's groups
    "WatchTopology": _READ,
    "CheckCompatibility": _READ,
    "ForceEpoch": Rule(frozenset({Role.ADMIN}), _group),
    "RegisterDpRanks": _WRITE,
    "QueryDpRanks": _READ,
    "WaitDpRanks": _READ,
}
"""By the method's name."""
