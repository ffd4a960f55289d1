"""Whether a decode server fits a prefill group, before it starts.

Judged by what the live routes declared so far, so a group that is not complete may still bring a violation later.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from interlock.topology.contract import SharedValue, SharedValues, cut_apart, declared, value_text
from interlock.topology.state import Topology
from interlock.topology.values import DECLARED_NONE, DecodeServer

_MAX_VALUE_TEXT = 256


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One way in which a decode server does not fit."""

    field: str
    """Field of the aggregate, for example `page_size` or `sizes.tp`."""
    prefill_value: str
    decode_value: str
    message: str
    """Why the two do not go together, for people."""


def check_compatibility(topology: Topology, decode_server: DecodeServer) -> tuple[Incompatibility, ...]:
    """Every way in which a decode server does not fit what the group declared so far. No live route: none.

    - `page_size` is equal.
    - `kv_cache_dtype`, `kv_layout` and `pools` are equal where both sides declare them.
    - `dsv41_spec_layout` is strictly equal; undeclared is taken as none on both sides. A group of which nobody
      declared anything yet and a rank is still missing is not judged by it: that rank may bring the layout.
    - Decode's cp is 1. Of the two tp the larger is a multiple of the smaller; they are equal where prefill shards its
      KV cache over ranks without context parallelism. Decode's pp is that of prefill, or 1.
    """
    contract = topology.routes.contract()
    if contract is None:
        return ()
    complete = topology.registered == topology.expected
    return (*_value_violations(contract, decode_server, complete), *_size_violations(contract, decode_server))


def _value_violations(prefill: SharedValues, decode: DecodeServer, complete: bool) -> Iterator[Incompatibility]:
    if prefill.page_size != decode.page_size:
        yield _violation(
            "page_size", prefill.page_size, decode.page_size, "KV pages move whole: page sizes must be equal"
        )
    for field, prefill_value, decode_value in (
        ("kv_cache_dtype", prefill.kv_cache_dtype, decode.kv_cache_dtype),
        ("kv_layout", prefill.kv_layout, decode.kv_layout),
        ("pools", prefill.pools, decode.pools),
    ):
        if declared(prefill_value) and declared(decode_value) and prefill_value != decode_value:
            yield _violation(field, prefill_value, decode_value, "both sides declare it: they must be equal")
    if prefill.dsv41_spec_layout is not None or complete:
        prefill_layout = DECLARED_NONE if prefill.dsv41_spec_layout is None else prefill.dsv41_spec_layout
        decode_layout = DECLARED_NONE if decode.dsv41_spec_layout is None else decode.dsv41_spec_layout
        if prefill_layout != decode_layout:
            yield _violation(
                "dsv41_spec_layout",
                prefill_layout,
                decode_layout,
                "the DSpark layout is positional: it must be equal, and undeclared is none",
            )


def _size_violations(prefill: SharedValues, decode: DecodeServer) -> Iterator[Incompatibility]:
    if decode.sizes.cp != 1:
        yield _violation(
            "sizes.cp", prefill.sizes.cp, decode.sizes.cp, "decode has no context parallelism: its cp must be 1"
        )
    smaller, larger = sorted((prefill.sizes.tp, decode.sizes.tp))
    if prefill.enable_kv_cache_sharding and prefill.sizes.cp == 1:
        if smaller != larger:
            yield _violation(
                "sizes.tp", prefill.sizes.tp, decode.sizes.tp, "prefill shards its KV cache over tp: tp must be equal"
            )
    elif larger % smaller:
        yield _violation(
            "sizes.tp", prefill.sizes.tp, decode.sizes.tp, "the larger tp must be a multiple of the smaller"
        )
    if decode.sizes.pp not in (1, prefill.sizes.pp):
        yield _violation("sizes.pp", prefill.sizes.pp, decode.sizes.pp, "decode's pp must be that of prefill, or 1")


def _violation(field: str, prefill: SharedValue, decode: SharedValue, message: str) -> Incompatibility:
    prefill_text, decode_text = cut_apart(value_text(prefill), value_text(decode), _MAX_VALUE_TEXT)
    return Incompatibility(field, prefill_text, decode_text, message)
