"""The contract: the values that all ranks of a group must share.

It is never stored. It is read off the live routes, so a value that no live route holds is forgotten.

Four fields can be *undeclared*: KV dtype, KV layout, DSpark layout and pools. Ranks may come undeclared before the
first one declares; its declaration then stands, and who comes undeclared or with another one is refused.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import wire_name
from interlock.topology.values import Declaration, DeclaredNone, ParallelSizes, Route, SpecLayout

DEFAULT_LOAD_BALANCE_METHOD = "follow_bootstrap_room"
DEFAULT_DECODE_ALLOCATION_POLICY = "early"

UNDECLARABLE_FIELDS = ("kv_cache_dtype", "kv_layout", "dsv41_spec_layout", "pools")
"""Fields of `SharedValues` that a rank can leave undeclared."""

SharedValue = int | str | tuple[PoolName.ValueType, ...] | Declaration
"""Value of one field of the contract. None or an empty tuple is undeclared."""


@dataclass(frozen=True, slots=True)
class SharedValues:
    """The values of one or more routes that count for the contract, defaults filled in."""

    sizes: ParallelSizes
    page_size: int
    kv_cache_dtype: str | None
    kv_layout: str | None
    dsv41_spec_layout: Declaration
    load_balance_method: str
    enable_dsa_cache_layer_split: bool
    enable_kv_cache_sharding: bool
    decode_allocation_policy: str
    pools: tuple[PoolName.ValueType, ...]


_FIELDS_COMPARED_WHOLE = tuple(field.name for field in fields(SharedValues) if field.name != "sizes")


def shared_values(route: Route) -> SharedValues:
    """What a route says of the contract; absent flags, method and policy are their defaults."""
    method, policy = route.load_balance_method, route.decode_allocation_policy
    return SharedValues(
        sizes=route.sizes,
        page_size=route.page_size,
        kv_cache_dtype=route.kv_cache_dtype,
        kv_layout=route.kv_layout,
        dsv41_spec_layout=route.dsv41_spec_layout,
        load_balance_method=DEFAULT_LOAD_BALANCE_METHOD if method is None else method,
        enable_dsa_cache_layer_split=bool(route.enable_dsa_cache_layer_split),
        enable_kv_cache_sharding=bool(route.enable_kv_cache_sharding),
        decode_allocation_policy=DEFAULT_DECODE_ALLOCATION_POLICY if policy is None else policy,
        pools=route.pools,
    )


def declared(value: SharedValue) -> bool:
    """Whether a value of an undeclarable field says anything."""
    return value is not None and value != ()


def standing_contract(variants: Iterable[SharedValues]) -> SharedValues | None:
    """The contract of routes that go together: of each field what any of them declared. None if there are none."""
    standing: SharedValues | None = None
    for shared in variants:
        if standing is None:
            standing = shared
            continue
        added = {
            field: getattr(shared, field)
            for field in UNDECLARABLE_FIELDS
            if declared(getattr(shared, field)) and not declared(getattr(standing, field))
        }
        standing = replace(standing, **added) if added else standing
    return standing


def missing_declarations(shared: SharedValues, standing: SharedValues) -> tuple[str, ...]:
    """Fields that the contract declares and these values do not."""
    return tuple(
        field
        for field in UNDECLARABLE_FIELDS
        if declared(getattr(standing, field)) and not declared(getattr(shared, field))
    )


def differences(standing: SharedValues, offered: SharedValues) -> tuple[tuple[str, SharedValue, SharedValue], ...]:
    """Every field in which an offered route breaks the standing contract: name, standing value, offered value."""
    if standing == offered:
        return ()
    found: list[tuple[str, SharedValue, SharedValue]] = [
        (f"sizes.{dimension}", stands, offers)
        for dimension, stands, offers in zip(ParallelSizes._fields, standing.sizes, offered.sizes, strict=True)
        if stands != offers
    ]
    for field in _FIELDS_COMPARED_WHOLE:
        stands, offers = getattr(standing, field), getattr(offered, field)
        if stands != offers and (field not in UNDECLARABLE_FIELDS or declared(stands)):
            found.append((field, stands, offers))
    return tuple(found)


def value_text(value: SharedValue) -> str:
    """A value of the contract as text, for people and for the details of a refusal."""
    match value:
        case None | ():
            return "undeclared"
        case DeclaredNone():
            return "none"
        case bool():
            return "true" if value else "false"
        case SpecLayout():
            return json.dumps(asdict(value), separators=(",", ":"))
        case tuple():
            return ",".join(wire_name(pool) for pool in value)
        case _:
            return str(value)


def cut_apart(first: str, second: str, limit: int) -> tuple[str, str]:
    """Two differing texts, each cut to about `limit` characters around the place where they part.

    Long layouts often differ in one number near the end; cut at the front they would look alike.
    """
    if len(first) <= limit and len(second) <= limit:
        return first, second
    shorter = min(len(first), len(second))
    parting = bisect_left(range(shorter), True, key=lambda at: first[: at + 1] != second[: at + 1])
    start = max(0, parting - limit // 4)
    return _cut(first, start, limit), _cut(second, start, limit)


def _cut(text: str, start: int, limit: int) -> str:
    return ("..." if start else "") + text[start : start + limit] + ("..." if start + limit < len(text) else "")
