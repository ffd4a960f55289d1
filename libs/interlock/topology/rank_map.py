"""A mapping by rank key that never changes, of which a changed one shares nearly everything."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from itertools import chain, compress
from operator import is_not
from typing import Generic, TypeVar, overload

from interlock.topology.values import RankKey

V = TypeVar("V")
D = TypeVar("D")

_BUCKETS = 128
"""A change copies one bucket and the list of buckets: at 8,192 keys together some 200 entries instead of 8,192."""


class RankMap(Mapping[RankKey, V], Generic[V]):
    """What a group keeps by rank key, in no particular order; never changes.

    Keys are spread over buckets, plain dicts that a changed mapping takes over from the one before, except those it
    touches. So a registration costs about the same in a group of 8 ranks and of 8,192, a history of revisions costs
    memory only for what changed, and two revisions are compared by looking at the buckets that are not the same object.
    """

    __slots__ = ("_buckets", "_count")

    _buckets: dict[int, dict[RankKey, V]]
    _count: int

    def __init__(self, entries: Iterable[tuple[RankKey, V]] = ()) -> None:
        self._buckets = {}
        self._count = 0
        if put := dict(entries):
            whole = self.changed(put=put)
            self._buckets, self._count = whole._buckets, whole._count

    def changed(self, removed: Iterable[RankKey] = (), put: Mapping[RankKey, V] | None = None) -> "RankMap[V]":
        """This mapping without the removed keys, and then with `put`."""
        after: RankMap[V] = RankMap.__new__(RankMap)
        buckets = after._buckets = self._buckets.copy()
        after._count = self._count
        copied: set[int] = set()
        for key in removed:
            if (number := hash(key) % _BUCKETS) in buckets and key in buckets[number]:
                del _own(buckets, number, copied)[key]
                after._count -= 1
                if not buckets[number]:
                    del buckets[number]
                    copied.discard(number)
        for key, value in (put or {}).items():
            bucket = _own(buckets, hash(key) % _BUCKETS, copied)
            after._count += key not in bucket
            bucket[key] = value
        return after

    def since(self, before: "RankMap[V]") -> tuple[list[RankKey], list[RankKey]]:
        """Keys that went since `before`, and keys that came or whose value is another one; both in order."""
        went: list[RankKey] = []
        came: list[RankKey] = []
        for number in {*_others(self, before), *_others(before, self)}:
            ours, theirs = self._buckets.get(number, {}), before._buckets.get(number, {})
            went += theirs.keys() - ours.keys()
            came += [key for key, value in ours.items() if key not in theirs or theirs[key] != value]
        return sorted(went), sorted(came)

    def __getitem__(self, key: RankKey) -> V:
        return self._buckets.get(hash(key) % _BUCKETS, {})[key]

    @overload
    def get(self, key: RankKey, default: None = None) -> V | None: ...

    @overload
    def get(self, key: RankKey, default: V | D) -> V | D: ...

    def get(self, key: RankKey, default: V | D | None = None) -> V | D | None:
        """Each registration asks for several; the mapping's own way by an exception is slow."""
        return self._buckets.get(hash(key) % _BUCKETS, {}).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets.get(hash(key) % _BUCKETS, {})

    def __iter__(self) -> Iterator[RankKey]:
        return chain.from_iterable(self._buckets.values())

    def __len__(self) -> int:
        return self._count

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        return self._buckets == other._buckets if isinstance(other, RankMap) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # equal to any mapping of the same entries, as a dict is

    def __repr__(self) -> str:
        return f"RankMap({dict(self)!r})"


class _Values(ValuesView[V]):
    """Values without a line of Python a key."""

    _mapping: RankMap[V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._buckets.values()))


def _others(ours: RankMap[V], theirs: RankMap[V]) -> Iterator[int]:
    """Numbers of our buckets that are not the same object there."""
    buckets = ours._buckets
    return compress(buckets, map(is_not, buckets.values(), map(theirs._buckets.get, buckets)))


def _own(buckets: dict[int, dict[RankKey, V]], number: int, copied: set[int]) -> dict[RankKey, V]:
    """A bucket that may be changed: copied, or made, unless it was before."""
    if number not in copied:
        copied.add(number)
        buckets[number] = buckets.get(number, {}).copy()
    return buckets[number]
