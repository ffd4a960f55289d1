"""The map that revisions of a group share: a mapping that never changes, whose changes cost only what they touch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.topology import RankKey, RankMap

keys = st.builds(RankKey, st.integers(0, 3), st.just(0), st.integers(0, 200), st.just(0))
entries = st.dictionaries(keys, st.integers(0, 2), max_size=60)


@settings(max_examples=200)
@given(entries, st.lists(keys, max_size=20), entries)
def test_a_changed_map_is_what_a_dict_would_be_and_leaves_the_one_before_as_it_was(before, removed, put):
    original = RankMap(before.items())
    changed = original.changed(removed, put)
    expected = {key: value for key, value in before.items() if key not in removed} | put
    assert dict(changed) == expected
    assert len(changed) == len(expected)
    assert sorted(changed.values()) == sorted(expected.values())
    assert changed == RankMap(expected.items())
    assert dict(original) == before
    assert len(original) == len(before)


@settings(max_examples=200)
@given(entries, st.lists(keys, max_size=20), entries)
def test_the_difference_of_two_maps_is_what_went_and_what_came_in_order(before, removed, put):
    first = RankMap(before.items())
    for second in (first.changed(removed, put), RankMap(first.changed(removed, put).items())):
        went, came = second.since(first)
        assert went == sorted(before.keys() - second.keys())
        assert came == sorted(key for key, value in second.items() if before.get(key, -1) != value)


def test_a_map_equals_any_mapping_of_the_same_entries():
    rank_map = RankMap([(RankKey(0, 0, 0, 0), 1)])
    assert rank_map == {RankKey(0, 0, 0, 0): 1}
    assert rank_map != {RankKey(0, 0, 0, 0): 2}
    assert rank_map != RankMap()
    assert rank_map != "map"
    assert repr(rank_map) == "RankMap({RankKey(dp=0, cp=0, tp=0, pp=0): 1})"


def test_a_map_cannot_be_changed_in_place():
    rank_map = RankMap([(RankKey(0, 0, 0, 0), 1)])
    with pytest.raises(TypeError):
        rank_map[RankKey(0, 0, 0, 0)] = 2
    with pytest.raises(TypeError):
        hash(rank_map)
    with pytest.raises(KeyError):
        rank_map[RankKey(0, 0, 1, 0)]


def test_a_change_in_a_large_map_copies_one_bucket_and_shares_the_others():
    large = RankMap((RankKey(0, 0, tp, 0), tp) for tp in range(8_192))
    changed = large.changed(put={RankKey(0, 0, 5, 0): -1})
    own = [number for number, bucket in changed._buckets.items() if bucket is not large._buckets[number]]
    assert len(own) == 1
    assert len(changed._buckets[own[0]]) < 200
    assert max(map(len, large._buckets.values())) < 200
