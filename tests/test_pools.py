"""The pool names: enum and wire string, there and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import POOL_NAMES, parse_pool_name, wire_name

# Written out once, so that a change of the rule or of the enum shows.
WIRE_NAMES = [
    "kv",
    "mamba",
    "swa",
    "auxiliary_swa",
    "indexer",
    "deepseek_v4_c4",
    "deepseek_v4_c4_indexer",
    "deepseek_v4_c4_indexer_scale",
    "deepseek_v4_c128",
    "deepseek_v4_c1",
    "deepseek_v4_c1_indexer",
    "deepseek_v4_c1_indexer_scale",
    "deepseek_v4_c2",
    "deepseek_v4_c2_indexer",
    "deepseek_v4_c2_indexer_scale",
    "deepseek_v4_c4_rope",
    "deepseek_v4_c128_rope",
    "deepseek_v4_c4_state",
    "deepseek_v4_c4_indexer_state",
    "deepseek_v4_c128_state",
    "draft",
    "draft_indexer",
    "draft_swa",
]


def test_every_pool_has_the_published_wire_string():
    assert [wire_name(pool) for pool in POOL_NAMES] == WIRE_NAMES


def test_every_enum_value_but_unspecified_goes_there_and_back():
    assert len(POOL_NAMES) == len(PoolName.values()) - 1 == 23
    for pool in POOL_NAMES:
        assert parse_pool_name(wire_name(pool)) == pool


@pytest.mark.parametrize("number", [0, 24, -1, 2**31 - 1])
def test_a_number_that_is_no_pool_is_refused_and_named(number):
    with pytest.raises(ValueError, match=str(number)):
        wire_name(number)


@given(
    st.sampled_from(WIRE_NAMES),
    st.sampled_from(
        [
            str.upper,
            str.title,
            lambda name: " " + name,
            lambda name: name + " ",
            lambda name: name + "\n",
            lambda name: name + "\0",
            lambda name: "pool_name_" + name,
            lambda name: "POOL_NAME_" + name.upper(),
            lambda name: name + "_",
            lambda name: "_" + name,
            lambda name: name[:-1],
            lambda name: name.replace("_", "-") + "-",
        ]
    ),
)
def test_near_misses_are_refused_and_named(name, spoil):
    spoilt = spoil(name)
    if spoilt in WIRE_NAMES:
        return
    with pytest.raises(ValueError, match=re.escape(repr(spoilt))):
        parse_pool_name(spoilt)


@given(st.text())
def test_any_other_text_is_refused_and_named(name):
    if name in WIRE_NAMES:
        return
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        parse_pool_name(name)


@pytest.mark.parametrize("name", ["unspecified", "UNSPECIFIED", "POOL_NAME_UNSPECIFIED", ""])
def test_unspecified_is_no_pool(name):
    with pytest.raises(ValueError, match="unknown pool name"):
        parse_pool_name(name)
