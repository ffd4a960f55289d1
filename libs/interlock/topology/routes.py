"""The live routes of a group, with an index of what they share and of what is missing."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, islice
from operator import attrgetter
from typing import TypeVar, overload

from interlock.topology.contract import (
    SharedValue,
    SharedValues,
    missing_declarations,
    shared_values,
    standing_contract,
)
from interlock.topology.limits import MAX_LISTED_KEYS
from interlock.topology.rank_map import RankMap
from interlock.topology.values import ParallelSizes, RankKey, Route

D = TypeVar("D")

Variants = tuple[tuple[SharedValues, RankMap[None]], ...]
"""Distinct shared values with the keys of the routes that hold each. Few: the contract lets them differ only in what
is left undeclared."""


class Routes(Mapping[RankKey, Route]):
    """Live routes by their keys; never changes.

    A change costs about the same whatever the number of routes: rows that stay are shared, and the index is carried
    along instead of being counted anew.
    """

    __slots__ = ("_rows", "_variants", "lowest_missing")

    _rows: RankMap[Route]
    _variants: Variants
    lowest_missing: tuple[RankKey, ...]
    """The lowest keys of the group that have no route, in order: all, or the first `MAX_LISTED_KEYS`."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._rows = RankMap()
        self._variants = ()
        self.lowest_missing = ()
        if routes := tuple(routes):
            whole = self.changed(registered=routes)
            self._rows, self._variants, self.lowest_missing = whole._rows, whole._variants, whole.lowest_missing

    def changed(self, removed: Iterable[RankKey] = (), registered: Iterable[Route] = ()) -> "Routes":
        """These routes without the removed keys and with the registered routes, which replace those of their keys."""
        removed = {key for key in removed if key in self._rows}
        put = {route.key: route for route in registered}
        after = Routes.__new__(Routes)
        after._rows = self._rows.changed(removed, put)
        gone = [self._rows[key] for key in (*removed, *put) if key in self._rows]
        after._variants = _with(_without(self._variants, gone) if gone else self._variants, put.values())
        after.lowest_missing = self._lowest_missing_in(after, removed, put)
        return after

    def _lowest_missing_in(
        self, after: "Routes", removed: set[RankKey], put: Mapping[RankKey, Route]
    ) -> tuple[RankKey, ...]:
        """`lowest_missing` of the routes that these became: looks on only from where this one ended."""
        sizes = after._sizes
        if sizes is None:
            return ()
        if sizes != self._sizes:
            return tuple(islice(_missing(after._rows, sizes, 0), MAX_LISTED_KEYS))
        known = self.lowest_missing
        missing = list(known)
        for key in put:
            at = bisect_left(missing, key)
            if at < len(missing) and missing[at] == key:
                del missing[at]
        if removed:
            missing = sorted({*missing, *(removed - put.keys())})
        if len(known) == MAX_LISTED_KEYS:
            # Behind the last known one others may be missing that come before what was just removed.
            del missing[bisect_right(missing, known[-1]) :]
            wanted = min(MAX_LISTED_KEYS, sizes.product - len(after)) - len(missing)
            if wanted > 0:
                missing += islice(_missing(after._rows, sizes, _position(known[-1], sizes) + 1), wanted)
        return tuple(missing[:MAX_LISTED_KEYS])

    @property
    def _sizes(self) -> ParallelSizes | None:
        return self._variants[0][0].sizes if self._variants else None

    def contract(self, without: RankKey | None = None) -> SharedValues | None:
        """The contract that these routes make, one of them left out if named. None: no route is left."""
        variants = self._variants
        if without is not None and without in self._rows:
            variants = _without(variants, [self._rows[without]])
        return standing_contract(shared for shared, _ in variants)

    def undeclared_count(self) -> int:
        """How many routes still have to declare what another one declared."""
        return sum(map(len, self._undeclared()))

    def undeclared(self) -> Iterator[RankKey]:
        """Their keys, in no particular order."""
        return chain.from_iterable(self._undeclared())

    def _undeclared(self) -> list[RankMap[None]]:
        standing = self.contract()
        if standing is None:
            return []
        return [keys for shared, keys in self._variants if missing_declarations(shared, standing)]

    def holders(self, field: str, value: SharedValue) -> Iterator[RankKey]:
        """Keys of the routes that hold a value of one field, such as `sizes.tp`; in no particular order."""
        held = attrgetter(field)
        return chain.from_iterable(keys for shared, keys in self._variants if held(shared) == value)

    def since(self, before: "Routes") -> tuple[list[RankKey], list[Route]]:
        """Keys that went and routes that came or changed since `before`, both by key."""
        went, came = self._rows.since(before._rows)
        return went, [self._rows[key] for key in came]

    def __getitem__(self, key: RankKey) -> Route:
        return self._rows[key]

    @overload
    def get(self, key: RankKey, default: None = None) -> Route | None: ...

    @overload
    def get(self, key: RankKey, default: Route | D) -> Route | D: ...

    def get(self, key: RankKey, default: Route | D | None = None) -> Route | D | None:
        return self._rows.get(key, default)

    def __iter__(self) -> Iterator[RankKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> ValuesView[Route]:
        return self._rows.values()

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __eq__(self, other: object) -> bool:
        return self._rows == (other._rows if isinstance(other, Routes) else other)

    __hash__ = None  # type: ignore[assignment]  # equal to any mapping of the same routes, as a dict is

    def __repr__(self) -> str:
        return f"Routes({list(self._rows.values())!r})"


def _without(variants: Variants, routes: Iterable[Route]) -> Variants:
    """The index without these routes, which it has."""
    return _regrouped(variants, routes, lambda keys, these: keys.changed(removed=these))


def _with(variants: Variants, routes: Iterable[Route]) -> Variants:
    """The index with these routes more."""
    return _regrouped(variants, routes, lambda keys, these: keys.changed(put=dict.fromkeys(these)))


def _regrouped(
    variants: Variants, routes: Iterable[Route], change: Callable[[RankMap[None], list[RankKey]], RankMap[None]]
) -> Variants:
    groups: list[tuple[SharedValues, RankMap[None], list[RankKey]]] = [(*variant, []) for variant in variants]
    for route in routes:
        shared = shared_values(route)
        for variant, _, these in groups:
            if variant == shared:
                these.append(route.key)
                break
        else:
            groups.append((shared, RankMap(), [route.key]))
    changed = ((shared, change(keys, these) if these else keys) for shared, keys, these in groups)
    return tuple((shared, keys) for shared, keys in changed if keys)


def _missing(rows: RankMap[Route], sizes: ParallelSizes, start: int) -> Iterator[RankKey]:
    """Keys without a route in ascending order, from a position on, found one at a time."""
    keys = (_key_at(position, sizes) for position in range(start, sizes.product))
    return (key for key in keys if key not in rows)


def _position(key: RankKey, sizes: ParallelSizes) -> int:
    """How many keys come before this one."""
    return ((key.dp * sizes.cp + key.cp) * sizes.tp + key.tp) * sizes.pp + key.pp


def _key_at(position: int, sizes: ParallelSizes) -> RankKey:
    """The key before which `position` keys come."""
    position, pp = divmod(position, sizes.pp)
    position, tp = divmod(position, sizes.tp)
    dp, cp = divmod(position, sizes.cp)
    return RankKey(dp, cp, tp, pp)
