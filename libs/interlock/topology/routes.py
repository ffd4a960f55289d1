"""The live routes of a group, with an index of what they share."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from itertools import compress, filterfalse, product
from operator import attrgetter, is_not

from interlock.topology.contract import SharedValues, missing_declarations, shared_values, standing_contract
from interlock.topology.values import RankKey, Route

Variants = tuple[tuple[SharedValues, int], ...]
"""Distinct shared values with the number of routes that hold each. Few: the contract lets them differ only in what
is left undeclared."""


class Routes(Mapping[RankKey, Route]):
    """Live routes by their keys; never changes.

    A change costs a copy of one dict and a look at the distinct shared values, not at every route.
    """

    __slots__ = ("_rows", "_variants")

    _rows: dict[RankKey, Route]
    _variants: Variants

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._rows = {}
        self._variants = ()
        for route in routes:
            self._put(route)

    def changed(self, removed: Iterable[RankKey] = (), registered: Iterable[Route] = ()) -> "Routes":
        """These routes without the removed keys and with the registered routes, which replace those of their keys."""
        after = Routes()
        after._rows = self._rows.copy()
        after._variants = self._variants
        for key in removed:
            after._drop(key)
        for route in registered:
            after._put(route)
        return after

    def _put(self, route: Route) -> None:
        self._uncount(self._rows.get(route.key))
        self._rows[route.key] = route
        self._variants = _counted(self._variants, shared_values(route), 1)

    def _drop(self, key: RankKey) -> None:
        self._uncount(self._rows.pop(key, None))

    def _uncount(self, route: Route | None) -> None:
        if route is not None:
            self._variants = _counted(self._variants, shared_values(route), -1)

    def contract(self, without: RankKey | None = None) -> SharedValues | None:
        """The contract that these routes make, one of them left out if named. None: no route is left."""
        variants = self._variants
        if without is not None and without in self._rows:
            variants = _counted(variants, shared_values(self._rows[without]), -1)
        return standing_contract(shared for shared, _ in variants)

    def undeclared_count(self) -> int:
        """How many routes still have to declare what another one declared."""
        standing = self.contract()
        if standing is None:
            return 0
        return sum(count for shared, count in self._variants if missing_declarations(shared, standing))

    def missing(self) -> Iterator[RankKey]:
        """Keys of the group that have no route, in ascending order, found one at a time."""
        if not self._variants:
            return iter(())
        sizes = self._variants[0][0].sizes
        # Plain tuples are looked up as they come, and made keys only where one is missing: no Python code per rank.
        return map(RankKey._make, filterfalse(self._rows.__contains__, product(*map(range, sizes))))

    def since(self, before: "Routes") -> tuple[list[RankKey], list[Route]]:
        """Keys that went and routes that came or changed since `before`, both by key."""
        ours, theirs = self._rows, before._rows
        # Most rows are the same object in both; that is told apart without Python code per rank.
        other_objects = compress(ours.values(), map(is_not, ours.values(), map(theirs.get, ours)))
        came = [route for route in other_objects if theirs.get(route.key) != route]
        return sorted(theirs.keys() - ours.keys()), sorted(came, key=attrgetter("key"))

    def __getitem__(self, key: RankKey) -> Route:
        return self._rows[key]

    def __iter__(self) -> Iterator[RankKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> ValuesView[Route]:
        return self._rows.values()  # Mapping's own view would run Python code a row

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, Routes) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # equal to any mapping of the same routes, as a dict is

    def __repr__(self) -> str:
        return f"Routes({list(self._rows.values())!r})"


def _counted(variants: Variants, shared: SharedValues, by: int) -> Variants:
    """The index with `by` more routes that hold these values."""
    for at, (variant, count) in enumerate(variants):
        if variant == shared:
            rest = variants[:at] + variants[at + 1 :]
            return ((variant, count + by), *rest) if count + by else rest
    return (*variants, (shared, by))
