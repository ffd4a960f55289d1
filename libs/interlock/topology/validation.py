"""Checks of one value on its own: every fault is named by its field path, and every check is bounded.

A fault is a pair of field path and what is wrong. Texts from outside are quoted in it only when short.
"""

import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from interlock.pools import POOL_NAMES
from interlock.topology.limits import (
    MAX_EXTRA_JSON_KEYS,
    MAX_EXTRA_JSON_LENGTH,
    MAX_GROUP_BYTES,
    MAX_HOST_NAME_BYTES,
    MAX_INSTANCE_ID_BYTES,
    MAX_JSON_DEPTH,
    MAX_LAYOUT_NUMBERS,
    MAX_LEASE_TTL_MS,
    MAX_RANKS,
    MAX_STATE_TYPES,
    MAX_STRING_BYTES,
    MAX_UINT32,
    MAX_UINT64,
    MIN_LEASE_TTL_MS,
)
from interlock.topology.values import DecodeServer, Instance, ParallelSizes, RankKey, Route, SpecLayout

Fault = tuple[str, str]
Faults = Iterator[Fault]

DEFAULT_GROUP = "default"

_DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_HOST_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_IPV4_LIKE = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label that resolvers take for the end of an IPv4 address in some old notation."""
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}\s]', re.DOTALL)
"""A string, a bracket, or white space outside of strings. Linear on any text: a string matches closed or not."""


def group_faults(group: str) -> Faults:
    """A group name is a DNS label."""
    if len(group) > MAX_GROUP_BYTES or not _DNS_LABEL.fullmatch(group):
        yield (
            "group",
            f"must be 1 to {MAX_GROUP_BYTES} of a-z, 0-9 and '-', with no '-' at the ends; got {_quoted(group)}",
        )


def instance_faults(instance: Instance, path: str) -> Faults:
    """An id of printable ASCII and a start after 1970."""
    if instance == Instance("", 0):
        yield path, "required"
        return
    if not (0 < len(instance.id) <= MAX_INSTANCE_ID_BYTES and instance.id.isascii() and instance.id.isprintable()):
        yield (
            f"{path}.id",
            f"must be 1 to {MAX_INSTANCE_ID_BYTES} printable ASCII characters; got {_quoted(instance.id)}",
        )
    yield from _number_faults(instance.started_at, f"{path}.started_at", 1, MAX_UINT64)


def incarnation_faults(incarnation: int, path: str) -> Faults:
    """A start of a process after 1970."""
    yield from _number_faults(incarnation, path, 1, MAX_UINT64)


def lease_ttl_faults(ttl: int, path: str) -> Faults:
    """A time that renewals can keep up with."""
    if not MIN_LEASE_TTL_MS <= ttl <= MAX_LEASE_TTL_MS:
        yield (
            path,
            f"must lie between {MIN_LEASE_TTL_MS // 1_000} s and {MAX_LEASE_TTL_MS // 1_000} s; got {ttl / 1_000:g} s",
        )


def sizes_faults(sizes: ParallelSizes, path: str) -> Faults:
    """Each at least 1, with a bounded product. Nothing is built of sizes before they passed this."""
    if sizes == ParallelSizes(0, 0, 0, 0):
        yield path, "required"
        return
    each_is_legal = True
    for dimension, size in zip(ParallelSizes._fields, sizes, strict=True):
        for fault in _number_faults(size, f"{path}.{dimension}", 1, MAX_RANKS):
            each_is_legal = False
            yield fault
    if each_is_legal and sizes.product > MAX_RANKS:
        yield path, f"dp x cp x tp x pp must be at most {MAX_RANKS}; got {sizes.product}"


def key_faults(key: RankKey, path: str) -> Faults:
    """A key on its own, sizes unknown."""
    for dimension, rank in zip(RankKey._fields, key, strict=True):
        yield from _number_faults(rank, f"{path}.{dimension}", 0, MAX_RANKS - 1)


def checked_route(route: Route, path: str = "route") -> tuple[Route, tuple[Fault, ...]]:
    """A route as it is stored, its address canonical, and its faults."""
    faults: list[Fault] = []
    faults += sizes_faults(route.sizes, f"{path}.sizes")
    for dimension, rank, size in zip(RankKey._fields, route.key, route.sizes, strict=True):
        if size >= 1 and not 0 <= rank < size:
            faults.append((f"{path}.key.{dimension}", f"must be below the size of {size}; got {rank}"))
    faults += incarnation_faults(route.incarnation, f"{path}.incarnation")
    rank_ip = route.rank_ip
    try:
        rank_ip = canonical_address(rank_ip)
    except ValueError as error:
        faults.append((f"{path}.rank_ip", str(error)))
    faults += _number_faults(route.rank_port, f"{path}.rank_port", 1, 65_535)
    faults += _compared_faults(route, path)
    faults += _text_faults(route.load_balance_method, f"{path}.load_balance_method")
    faults += _text_faults(route.decode_allocation_policy, f"{path}.decode_allocation_policy")
    if route.prefill_http_port is not None:
        faults += _number_faults(route.prefill_http_port, f"{path}.prefill_http_port", 1, 65_535)
    return route if rank_ip == route.rank_ip else replace(route, rank_ip=rank_ip), tuple(faults)


def decode_server_faults(server: DecodeServer, path: str = "decode_server") -> Faults:
    """What a decode server says of itself."""
    yield from sizes_faults(server.sizes, f"{path}.sizes")
    yield from _compared_faults(server, path)


def canonical_address(text: str) -> str:
    """An address as it is stored: an IP literal in its shortest form without brackets, or a host name in lower case.

    An IPv6 address that maps an IPv4 one is stored as that one.

    Raises:
        ValueError: neither, or one that no single host listens on; says what is wrong.
    """
    if len(text) > MAX_HOST_NAME_BYTES:
        raise ValueError(f"must be at most {MAX_HOST_NAME_BYTES} characters; got {len(text)}")
    return _canonical(text)


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    """Kept, for the ranks of one host share its address; texts are short here."""
    bracketed = text.startswith("[") and text.endswith("]")
    literal = text[1:-1] if bracketed else text
    if "%" in literal:
        raise ValueError(f"a zone id means nothing on another host; got {text!r}")
    try:
        address = ipaddress.IPv6Address(literal) if bracketed or ":" in text else ipaddress.IPv4Address(literal)
    except ValueError:
        return _canonical_host_name(text)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        raise ValueError(f"must be an address that others can reach, not the wildcard {text!r}")
    if address.is_multicast:
        raise ValueError(f"must be the address of one host, not the multicast address {text!r}")
    return str(address)


def _canonical_host_name(text: str) -> str:
    name = text.lower()
    labels = name.split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels) or _IPV4_LIKE.fullmatch(labels[-1]):
        raise ValueError(f"must be an IPv4 or IPv6 address or a host name; got {_quoted(text)}")
    return name


def _compared_faults(server: Route | DecodeServer, path: str) -> Faults:
    """The fields that prefill and decode servers have in common."""
    yield from _number_faults(server.page_size, f"{path}.page_size", 1, MAX_UINT32)
    yield from _text_faults(server.kv_cache_dtype, f"{path}.kv_cache_dtype")
    yield from _text_faults(server.kv_layout, f"{path}.kv_layout")
    if isinstance(server.dsv41_spec_layout, SpecLayout):
        yield from _layout_faults(server.dsv41_spec_layout, f"{path}.dsv41_spec_layout.layout")
    pools = set(server.pools)
    if unknown := pools.difference(POOL_NAMES):
        yield f"{path}.pools", f"{min(unknown)} is no number of PoolName"
    elif len(pools) < len(server.pools):
        yield f"{path}.pools", "must name each pool at most once"


def _layout_faults(layout: SpecLayout, path: str) -> Faults:
    for field, rows in (("state_types", layout.state_types), ("state_item_lens", layout.state_item_lens)):
        if len(rows) > MAX_STATE_TYPES:
            yield f"{path}.{field}", f"must have at most {MAX_STATE_TYPES} entries; got {len(rows)}"
            return
    lists: list[tuple[str, tuple[int, ...], int]] = [
        ("compression_ratios", layout.compression_ratios, MAX_UINT32),
        ("kv_layer_ids", layout.kv_layer_ids, MAX_UINT32),
        ("kv_item_lens", layout.kv_item_lens, MAX_UINT64),
        *((f"state_item_lens[{at}].item_lens", row, MAX_UINT64) for at, row in enumerate(layout.state_item_lens)),
    ]
    if (count := sum(len(numbers) for _, numbers, _ in lists)) > MAX_LAYOUT_NUMBERS:
        yield path, f"must hold at most {MAX_LAYOUT_NUMBERS} numbers; got {count}"
        return
    for field, numbers, most in lists:
        if numbers and not 0 <= min(numbers) <= max(numbers) <= most:
            yield f"{path}.{field}", f"must all lie between 0 and {most}"
    if layout.num_draft_tokens is not None:
        yield from _number_faults(layout.num_draft_tokens, f"{path}.num_draft_tokens", 0, MAX_UINT32)
    for at, state_type in enumerate(layout.state_types):
        yield from _text_faults(state_type, f"{path}.state_types[{at}]")
    yield from _extra_json_faults(layout.extra_json, f"{path}.extra_json")


def _extra_json_faults(entries: tuple[tuple[str, str], ...], path: str) -> Faults:
    if len(entries) > MAX_EXTRA_JSON_KEYS:
        yield path, f"must have at most {MAX_EXTRA_JSON_KEYS} keys; got {len(entries)}"
        return
    if (length := sum(len(key) + len(text) for key, text in entries)) > MAX_EXTRA_JSON_LENGTH:
        yield path, f"must have at most {MAX_EXTRA_JSON_LENGTH} characters in all; got {length}"
        return
    for at, (key, text) in enumerate(entries):
        if wrong := list(_text_faults(key, f"{path}, key {at}")):
            yield from wrong
        elif fault := _json_fault(text):
            yield f"{path}[{key!r}]", fault
    if len(dict(entries)) < len(entries):
        yield path, "must name each key at most once"


def _json_fault(text: str) -> str | None:
    """What keeps a text from being canonical JSON: valid, no white space between tokens, object keys sorted.

    Numbers and escapes are left as they are spelt: texts are compared byte by byte, never by what they mean.
    """
    depth = 0
    for token in _JSON_TOKEN.finditer(text):
        match token[0][0]:
            case "[" | "{":
                depth += 1
                if depth > MAX_JSON_DEPTH:
                    return f"must be nested at most {MAX_JSON_DEPTH} deep"
            case "]" | "}":
                depth -= 1
            case '"':
                pass
            case _:
                return "must be canonical JSON: no white space between tokens"
    try:
        text.encode()
        json.loads(text, object_pairs_hook=_sorted_object, parse_int=str, parse_float=str, parse_constant=_no_number)
    except ValueError as error:
        return f"must be canonical JSON: {error}"
    return None


def _sorted_object(pairs: list[tuple[str, object]]) -> None:
    keys = [key for key, _ in pairs]
    if any(after <= before for before, after in pairwise(keys)):
        raise ValueError("the keys of an object must be sorted, each there once")


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _number_faults(number: int, path: str, least: int, most: int) -> Faults:
    if not least <= number <= most:
        yield path, f"must lie between {least} and {most}; got {number}"


def _text_faults(text: str | None, path: str) -> Faults:
    if text is None:
        return
    if not (0 < len(text) <= MAX_STRING_BYTES and text.isprintable() and len(text.encode()) <= MAX_STRING_BYTES):
        yield path, f"must be 1 to {MAX_STRING_BYTES} bytes of printable text; got {_quoted(text)}"


def _quoted(text: str) -> str:
    return ascii(text) if len(text) <= 64 else f"{len(text)} characters"
