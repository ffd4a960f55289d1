"""How the ranks of a group stand: which are live, which are missing, and what the undeclared ones lack."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.client import WatchChange, WatchSnapshot
    from interlock.topology import ParallelSizes, RankKey, SharedValues

LIVE, UNDECLARED, MISSING = "live", "undeclared", "missing"
"""What a rank can be. Live: it has a route, and declared all that others did."""


class Standing:
    """A group at one revision, rank by rank. What it takes to say is found when it is asked for.

    Args:
        item: What a watch gave.
    """

    def __init__(self, item: "WatchSnapshot | WatchChange") -> None:
        self.state = item.state
        self.routes = item.routes

    @cached_property
    def contract(self) -> "SharedValues | None":
        """What the live ranks share, as far as they declared. None: no rank is live."""
        return self.routes.contract()

    @cached_property
    def undeclared(self) -> "frozenset[RankKey]":
        """Keys of the ranks that have yet to declare what another one declared."""
        return frozenset(self.routes.undeclared())

    @property
    def sizes(self) -> "ParallelSizes | None":
        """None: no rank is live, so nobody has said."""
        return None if self.contract is None else self.contract.sizes

    def word(self, key: "RankKey") -> str:
        """What the rank of a key is."""
        if key in self.undeclared:
            return UNDECLARED
        return LIVE if key in self.routes else MISSING

    def rank_keys(self) -> "Iterator[RankKey]":
        """Every key that the group has or lacks, in ascending order."""
        return iter(()) if self.sizes is None else self.sizes.rank_keys()

    def has(self, key: "RankKey") -> bool:
        """Whether the group has, or lacks, a rank of that key."""
        return self.sizes is not None and all(rank < size for rank, size in zip(key, self.sizes, strict=True))

    def missing(self) -> "Iterator[RankKey]":
        """Keys without a route, in ascending order."""
        return (key for key in self.rank_keys() if key not in self.routes)

    def undeclared_fields(self, key: "RankKey") -> tuple[str, ...]:
        """What an undeclared rank has yet to declare."""
        from interlock.topology import shared_values
        from interlock.topology.contract import missing_declarations

        assert self.contract is not None
        return missing_declarations(shared_values(self.routes[key]), self.contract)

    def progress(self) -> str:
        """How far the group has come, in words."""
        state = self.state
        parts = [f"{state.registered} of {state.expected} ranks registered"]
        parts += [
            f"{n} {word}" for n, word in ((state.missing_count, MISSING), (state.undeclared_count, UNDECLARED)) if n
        ]
        return ", ".join(parts)


def key_ranges(keys: "Iterable[RankKey]") -> Iterator[str]:
    """Rank keys as text: those that differ in `tp` alone on one line, `dp=0 cp=0 tp=1,4-7 pp=0`."""
    ordered = sorted(keys, key=lambda key: (key.dp, key.cp, key.pp, key.tp))
    for (dp, cp, pp), alike in groupby(ordered, key=lambda key: (key.dp, key.cp, key.pp)):
        yield f"dp={dp} cp={cp} tp={_ranges([key.tp for key in alike])} pp={pp}"


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers, runs of them cut short: `1,4-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
