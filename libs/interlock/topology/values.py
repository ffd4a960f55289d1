"""What ranks register, as frozen values.

Presence is kept: an optional field that a rank left out is None here, even where the rules read it as a default.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from itertools import product
from math import prod
from typing import Final, Literal, NamedTuple

from interlock.kv.v1.pool_name_pb2 import PoolName


class RankKey(NamedTuple):
    """Which rank of a group; ordered by dp, cp, tp, pp.

    A tuple, since groups of thousands of ranks hash, compare and sort keys all the time.
    """

    dp: int
    cp: int
    tp: int
    pp: int

    def __str__(self) -> str:
        return f"dp={self.dp} cp={self.cp} tp={self.tp} pp={self.pp}"


class ParallelSizes(NamedTuple):
    """How many ranks a server has in each dimension."""

    dp: int
    cp: int
    tp: int
    pp: int

    @property
    def product(self) -> int:
        """How many ranks that makes, as a Python integer: it cannot overflow."""
        return prod(self)

    def rank_keys(self) -> Iterator[RankKey]:
        """Every rank key in ascending order, made one at a time."""
        return map(RankKey._make, product(*map(range, self)))


@total_ordering
@dataclass(frozen=True, slots=True)
class Instance:
    """One launch of a group; ordered by `started_at`, ties by `id`."""

    id: str
    started_at: int
    """Unix time in nanoseconds."""

    def __lt__(self, other: "Instance") -> bool:
        return (self.started_at, self.id) < (other.started_at, other.id)

    def __str__(self) -> str:
        return f"{self.id!r} started at {self.started_at}"


@dataclass(frozen=True, slots=True)
class SpecLayout:
    """The positional transfer layout of DeepSeek-V4.1 with DSpark; order counts in every list."""

    num_draft_tokens: int | None = None
    compression_ratios: tuple[int, ...] = ()
    kv_layer_ids: tuple[int, ...] = ()
    kv_item_lens: tuple[int, ...] = ()
    state_types: tuple[str, ...] = ()
    state_item_lens: tuple[tuple[int, ...], ...] = ()
    extra_json: tuple[tuple[str, str], ...] = ()
    """Keys not yet known, each with its value as canonical JSON text; put in order, since a map has none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra_json", tuple(sorted(self.extra_json)))


class DeclaredNone(Enum):
    """The type of `DECLARED_NONE`."""

    DECLARED_NONE = "none"


DECLARED_NONE: Final[Literal[DeclaredNone.DECLARED_NONE]] = DeclaredNone.DECLARED_NONE
"""A server has no DSpark layout and says so. Differs from None, which is undeclared."""

Declaration = SpecLayout | DeclaredNone | None
"""What a server says of its DSpark layout: a layout, `DECLARED_NONE`, or None for undeclared."""


@dataclass(frozen=True, slots=True)
class Route:
    """What one prefill rank registers. Fields as in the proto; None is absent."""

    key: RankKey
    incarnation: int
    """Start of the rank's process as Unix time in nanoseconds."""
    sizes: ParallelSizes
    rank_ip: str
    rank_port: int
    page_size: int
    """Tokens a KV page."""
    kv_cache_dtype: str | None = None
    kv_layout: str | None = None
    dsv41_spec_layout: Declaration = None
    load_balance_method: str | None = None
    enable_dsa_cache_layer_split: bool | None = None
    enable_kv_cache_sharding: bool | None = None
    decode_allocation_policy: str | None = None
    pools: tuple[PoolName.ValueType, ...] = ()
    """Put in the order of their numbers, since order does not matter. Empty: undeclared."""
    prefill_http_port: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pools", tuple(sorted(self.pools)))


@dataclass(frozen=True, slots=True)
class DecodeServer:
    """What a decode server is, as far as a prefill server must match it."""

    page_size: int
    sizes: ParallelSizes
    kv_cache_dtype: str | None = None
    kv_layout: str | None = None
    dsv41_spec_layout: Declaration = None
    pools: tuple[PoolName.ValueType, ...] = ()
    """Put in the order of their numbers, since order does not matter. Empty: undeclared."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pools", tuple(sorted(self.pools)))
