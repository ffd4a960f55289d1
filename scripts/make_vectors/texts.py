"""`pool_names.json`, `addresses.json`, `extra_json.json`: texts that stand for something, and which are legal."""

import json
from itertools import combinations

from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import POOL_NAMES, parse_pool_name, wire_name
from interlock.topology.validation import canonical_address, checked_route
from interlock.topology.values import ParallelSizes, RankKey, Route, SpecLayout
from scripts.make_vectors.files import Files, json_file

NOT_WIRE_NAMES = [
    "",
    "KV",
    "Kv",
    " kv",
    "kv ",
    "kv\n",
    "kv\0",
    "pool_name_kv",
    "POOL_NAME_KV",
    "unspecified",
    "deepseek-v4-c1",
    "deepseek_v4_c",
    "deepseek_v4_c12",
    "deepseek_v4_c1_",
    "\uff4bv",  # full-width k
    "sw\u0430",  # Cyrillic a
    "\u0131ndexer",  # dotless i, which some languages make of I
]
ADDRESSES = [
    "10.0.0.1",
    "127.0.0.1",
    "255.255.255.254",
    "::1",
    "[::1]",
    "2001:db8::1",
    "2001:DB8:0:0:0:0:0:1",
    "2001:0db8::0001",
    "[2001:db8::1]",
    "2001:db8::1:0:0:1",
    "2001:db8:0:1:1:1:1:1",
    "2001:0:0:1:0:0:0:1",
    "fe80::1",
    "fd00::a:b",
    "::ffff:10.0.0.1",
    "::ffff:a00:1",
    "64:ff9b::10.0.0.1",
    "host",
    "host-1.example",
    "Host-1.EXAMPLE",
    "xn--bcher-kva.example",
    "1host.example",
    "",
    " 10.0.0.1",
    "10.0.0.1 ",
    "10.0.0.01",
    "10.0.0",
    "10.0.0.256",
    "10.0.0.1.",
    "10.1",
    "0x0a.0.0.1",
    "167772161",
    "0.0.0.0",
    "224.0.0.1",
    "::",
    "[::]",
    "ff02::1",
    "fe80::1%eth0",
    "[fe80::1",
    "fe80::1]",
    "[10.0.0.1]",
    ":::1",
    "1::2::3",
    "2001:db8::g",
    "10.0.0.1:9000",
    "[::1]:9000",
    "-host",
    "host-",
    "a..b",
    "host_1",
    "b\u00fccher.example",
    "host\n",
    "host\0",
    "a" * 64,
    ".".join(["a" * 63] * 3 + ["a" * 61]),
    ".".join(["a" * 63] * 3 + ["a" * 62]),
]
EXTRA_JSON = [
    "1",
    "1.0",
    "1.00",
    "1e0",
    "1E0",
    "10",
    "-0",
    "0",
    "0.1",
    "1e400",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551616",
    "true",
    "false",
    "null",
    '""',
    '"1"',
    '"a b"',
    '"\u00e9"',
    '"\\u00e9"',
    '"\\u00E9"',
    '"\\/"',
    '"/"',
    '"\U0001f511"',
    '"\\ud83d\\udd11"',
    "[]",
    "{}",
    "[1,2]",
    "[2,1]",
    '{"a":1,"b":2}',
    '{"a":{"a":1,"b":[{"c":1,"d":2}]}}',
    '{"":1,"A":2,"a":3,"\u00e9":4}',
    '{"\uffee":1,"\U0001f511":2}',
    "[" * 32 + "]" * 32,
    "",
    " 1",
    "1 ",
    "1\n",
    "01",
    "+1",
    ".5",
    "1.",
    "1e",
    "0x1",
    "NaN",
    "Infinity",
    "-Infinity",
    "True",
    "nul",
    "'a'",
    '"a',
    '"\t"',
    "[1, 2]",
    '{"a": 1}',
    '{"b":2,"a":1}',
    '{"a":1,"a":1}',
    '{"a":1,"a":2}',
    '{"\U0001f511":1,"\uffee":2}',
    "{a:1}",
    "[1,]",
    "[1]]",
    "1,2",
    "// 1",
    "[" * 33 + "]" * 33,
]


def text_files() -> Files:
    return {
        "pool_names.json": json_file(_pool_names()),
        "addresses.json": json_file([_address(text) for text in ADDRESSES]),
        "extra_json.json": json_file(_extra_json()),
    }


def _pool_names() -> dict[str, object]:
    for text in NOT_WIRE_NAMES:
        try:
            raise AssertionError(f"{text!r} is pool {parse_pool_name(text)}")
        except ValueError:
            pass
    return {
        "pools": [
            {"number": pool, "enum_name": PoolName.Name(pool), "wire_name": wire_name(pool)} for pool in POOL_NAMES
        ],
        "not_wire_names": NOT_WIRE_NAMES,
    }


def _address(text: str) -> dict[str, object]:
    try:
        return {"text": text, "legal": True, "stored": canonical_address(text)}
    except ValueError:
        return {"text": text, "legal": False}


def _extra_json() -> dict[str, object]:
    legal = [text for text in EXTRA_JSON if not _layout_faults(text)]
    alike = [
        [left, right]
        for left, right in combinations(legal, 2)
        if json.loads(left) == json.loads(right)
        and not {left, right} & {"true", "false"}  # which Python takes for 1, 0
    ]
    return {
        "texts": [{"text": text, "legal": text in legal} for text in EXTRA_JSON],
        "differ_though_they_mean_the_same": alike,
    }


def _layout_faults(text: str) -> bool:
    route = Route(
        key=RankKey(0, 0, 0, 0),
        incarnation=1,
        sizes=ParallelSizes(1, 1, 1, 1),
        rank_ip="10.0.0.1",
        rank_port=1,
        page_size=1,
        dsv41_spec_layout=SpecLayout(extra_json=(("key", text),)),
    )
    return bool(checked_route(route)[1])
