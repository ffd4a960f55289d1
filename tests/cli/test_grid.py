"""The rank grid."""

import pytest

from interlock.topology import ParallelSizes, RankKey
from interlock_cli.grid import coloured, grid_lines


def _grid(sizes, troubled=None, width=100, height=40):
    """A grid in which ranks are live but for those that `troubled` names."""
    words = {RankKey(*key): word for key, word in (troubled or {}).items()}
    return grid_lines(ParallelSizes(*sizes), lambda key: words.get(key, "live"), width, height)


def test_one_rank_is_one_mark():
    assert _grid((1, 1, 1, 1)) == [
        "           pp=0",
        "tp         0",
        "dp=0 cp=0  #",
    ]


def test_a_rank_is_found_by_its_row_block_and_column():
    assert _grid((2, 2, 12, 2), {(0, 1, 10, 1): "missing", (1, 0, 3, 0): "undeclared"}) == [
        "           pp=0          pp=1",
        "tp         012345678901  012345678901",
        "dp=0 cp=0  ############  ############",
        "dp=0 cp=1  ############  ##########.#",
        "dp=1 cp=0  ###?########  ############",
        "dp=1 cp=1  ############  ############",
    ]


def test_stages_that_do_not_fit_beside_each_other_go_below():
    assert _grid((1, 1, 4, 3), {(0, 0, 3, 2): "missing"}, width=22) == [
        "           pp=0  pp=1",
        "tp         0123  0123",
        "dp=0 cp=0  ####  ####",
        "           pp=2",
        "tp         0123",
        "dp=0 cp=0  ###.",
    ]


def test_a_stage_wider_than_the_screen_goes_on_below():
    assert _grid((1, 1, 20, 1), {(0, 0, 13, 0): "missing"}, width=21) == [
        "           pp=0",
        "tp         0123456789",
        "dp=0 cp=0  ##########",
        "           pp=0 from tp=10",
        "tp         0123456789",
        "dp=0 cp=0  ###.######",
    ]


def test_a_group_of_512_ranks_is_ten_lines_of_89_columns():
    lines = _grid((4, 2, 8, 8))
    assert (len(lines), max(map(len, lines))) == (10, 89)


def test_many_rows_that_look_the_same_are_one():
    assert _grid((64, 2, 2, 1), {(40, 1, 0, 0): "missing"}) == [
        "                                   pp=0",
        "tp                                 01",
        "dp=0 cp=0 to dp=40 cp=0: 81 rows   ##",
        "dp=40 cp=1                         .#",
        "dp=41 cp=0 to dp=63 cp=1: 46 rows  ##",
    ]


def test_what_is_too_high_is_counted_by_stage():
    troubled = {(0, 0, 0, 1): "missing", (0, 0, 1, 1): "undeclared"}
    assert _grid((1, 1, 4, 4), troubled, width=24, height=4) == [
        "live       pp=0  pp=1",
        "dp=0 cp=0  4/4   2/4 1?",
        "live       pp=2  pp=3",
        "dp=0 cp=0  4/4   4/4",
    ]


def test_of_a_grid_that_still_is_too_high_the_rows_in_trouble_are_shown():
    assert _grid((40, 1, 2, 1), {(n, 0, n % 2, 0): "missing" for n in range(0, 40, 4)}, height=5) == [
        "all live in 30 rows; the others:",
        "live        pp=0",
        "dp=0 cp=0   1/2",
        "dp=4 cp=0   1/2",
        "... and 8 more lines",
    ]


@pytest.mark.parametrize("width", [1, 8, 40, 80, 200])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (4, 2, 8, 8), (1, 1, 4096, 2), (1024, 8, 1, 1), (16, 4, 16, 64)])
def test_a_grid_is_never_higher_than_it_may_be(sizes, width):
    everything_missing = grid_lines(ParallelSizes(*sizes), lambda key: "missing", width, 12)
    every_other_live = grid_lines(ParallelSizes(*sizes), lambda key: ("live", "missing")[key.dp % 2], width, 12)
    assert max(len(everything_missing), len(every_other_live)) <= 12


def test_marks_are_coloured_and_nothing_else():
    line = "dp=0 cp=0 to dp=1 cp=0: 2 rows  ##.?  .###"
    assert [(line[span.start : span.end], span.style) for span in coloured(line).spans] == [
        ("##", "green"),
        ("?", "yellow"),
        (".", "red"),
        ("###", "green"),
        (".", "red"),
    ]
    assert coloured("... and 8 more lines").spans == []
