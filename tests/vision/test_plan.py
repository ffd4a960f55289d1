from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.reasons import Reason
from interlock.vision import (
    DEFAULT_PROFILE_NAME,
    MAX_PIXELS,
    PROFILES,
    Plan,
    VisionError,
    VisionProfile,
    check_plan,
    plan,
    token_types,
)
from vision import corpus
from vision.cases import geometry

DEFAULT = PROFILES[DEFAULT_PROFILE_NAME]
RATIO_8 = PROFILES["deepseek-v4-flash-vision-exp"]


def profiles():
    return st.builds(
        VisionProfile,
        patch_size=st.integers(1, 128),
        downsample_ratio=st.integers(1, 16),
        max_image_tokens=st.integers(4, 16_384),
        min_pixels=st.sampled_from([0, 1, 1000, 295_936, MAX_PIXELS]),
        max_wh_ratio=st.sampled_from([None, 1, 8, 1000]),
    )


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        # canvas, resized, top and left, patch grid, token grid, tokens
        ((1, 1), Plan(546, 546, 546, 546, 0, 0, 39, 39, 13, 13, 184)),
        ((2, 3), Plan(448, 672, 448, 672, 0, 0, 32, 48, 11, 16, 194)),
        ((1, 10_000), Plan(42, 21_462, 2, 21_462, 0, 20, 3, 1533, 1, 511, 1024)),
        ((10_000, 1), Plan(42_882, 42, 42_882, 4, 19, 0, 3063, 3, 1021, 1, 1024)),
        ((500, 501), Plan(546, 546, 545, 546, 0, 0, 39, 39, 13, 13, 184)),
    ],
)
def test_known_sizes_have_their_known_plans(size, expected):
    assert plan(*size, DEFAULT) == expected


def test_the_order_of_the_floating_point_operations_is_the_published_one():
    # 251 / 28 * 182 is just below 1631.5, 251 * 182 / 28 is just that and would round to 1632.
    assert plan(28, 251, DEFAULT).resize_height == 1631
    assert plan(251, 28, DEFAULT).resize_width == 1631


@pytest.mark.parametrize("name", [name for name, entry in corpus.FILES.items() if entry.get("patches")])
def test_the_corpus_has_the_plans_of_its_manifest(name):
    entry = corpus.FILES[name]
    expected = entry["plan"]
    assert astuple(plan(entry["expect"]["width"], entry["expect"]["height"], DEFAULT)) == tuple(
        expected[key]
        for key in (
            "canvas_w", "canvas_h", "resize_w", "resize_h", "top", "left", "vit_w", "vit_h", "llm_w", "llm_h", "tokens",
        )
    )  # fmt: skip


@pytest.mark.parametrize("size", [(1, 42_924), (85_764, 1), (1, 2**32 - 1), (2**32 - 1, 1)])
def test_extreme_shapes_are_refused_naming_the_size(size):
    with pytest.raises(VisionError, match=f"{size[0]}x{size[1]}") as refused:
        plan(*size, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.NO_LEGAL_PLAN, "size")


@pytest.mark.parametrize("size", [(1, 42_923), (85_763, 1)])
def test_one_pixel_less_extreme_shapes_are_legal(size):
    made = plan(*size, DEFAULT)
    check_plan(made, *size, DEFAULT)
    assert 1 in (made.resize_width, made.resize_height)


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 5), (2**32, 1), (1, 2**32), (10**400, 10**400)])
def test_sides_that_no_picture_has_are_refused(size):
    with pytest.raises(VisionError) as refused:
        plan(*size, DEFAULT)
    assert refused.value.reason is Reason.NO_LEGAL_PLAN


def test_the_largest_square_that_travels_has_a_plan():
    assert plan(2**32 - 1, 2**32 - 1, DEFAULT).token_count == 994


def test_the_largest_legal_grid_has_9189_patches():
    grids = [plan(width, 1, DEFAULT) for width in (10_000, 20_000, 40_000, 85_763)]
    grids += [plan(side, 1000, DEFAULT) for side in range(100, 60_000, 97)]
    grids += [plan(1000, side, DEFAULT) for side in range(100, 40_000, 97)]
    largest = max(made.grid_width * made.grid_height for made in grids)
    assert largest == 9189
    assert largest * 3 * 14 * 14 * 2 == 10_806_264


def test_a_picture_wider_than_the_ratio_is_stretched_over_the_canvas():
    assert plan(9000, 1000, RATIO_8) == Plan(2016, 252, 2016, 252, 0, 0, 144, 18, 48, 6, 296)


def test_a_canvas_without_pixels_is_refused():
    with pytest.raises(VisionError, match="23x27") as refused:
        plan(23, 27, VisionProfile(14, 1, 5, 0))
    assert refused.value.reason is Reason.NO_LEGAL_PLAN


def test_a_profile_whose_patches_go_over_the_limit_has_no_plan():
    with pytest.raises(VisionError, match="268435456") as refused:
        plan(12_000, 12_000, VisionProfile(128, 16, 16_384, 0))
    assert refused.value.reason is Reason.NO_LEGAL_PLAN


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), profiles())
def test_every_size_has_a_legal_plan_within_budget_or_is_refused(width, height, profile):
    try:
        made = plan(width, height, profile)
    except VisionError as refused:
        if refused.reason is Reason.NO_LEGAL_PLAN:
            return
        raise
    assert made.token_count <= profile.max_image_tokens
    if width * height <= MAX_PIXELS:
        check_plan(made, width, height, profile)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000))
def test_token_types_are_start_rows_that_each_end_in_a_new_line_and_end(width, height):
    made = plan(width, height, DEFAULT)
    types = token_types(made)
    assert len(types) == made.token_count
    assert types[0] == 0
    assert types[-1] == 3
    rows = types[1:-1].split(b"\x02")
    assert rows.pop() == b""
    assert rows == [b"\x01" * made.token_grid_width] * made.token_grid_height


LEGAL = geometry((70, 56), (60, 50), (3, 2), DEFAULT)


def test_an_explicit_legal_plan_is_accepted():
    check_plan(LEGAL, 100, 90, DEFAULT)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("canvas_width", 0),
        ("canvas_width", -14),
        ("canvas_width", 71),
        ("canvas_height", 0),
        ("canvas_height", 57),
        ("resize_width", 0),
        ("resize_width", 71),
        ("resize_height", 0),
        ("resize_height", 57),
        ("top", -1),
        ("top", 7),
        ("left", -1),
        ("left", 11),
        ("grid_width", 6),
        ("grid_height", 3),
        ("token_grid_width", 3),
        ("token_grid_height", 1),
        ("token_count", 7),
    ],
)
def test_each_illegal_value_of_an_explicit_plan_is_named(field, value):
    with pytest.raises(VisionError, match=f"{field} is {value}") as refused:
        check_plan(replace(LEGAL, **{field: value}), 100, 90, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, f"plan.{field}")


def test_products_that_overflow_machine_words_are_refused_before_any_memory():
    side = 2**32 - 4  # a multiple of 14
    huge = geometry((side, side), (side, side), (0, 0), DEFAULT)
    with pytest.raises(VisionError, match=f"{side * side * 6} bytes") as refused:
        check_plan(huge, 1, 1, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "plan.canvas_width")


def test_a_wide_enough_intermediate_picture_is_refused():
    wide = geometry((14_000, 14), (14_000, 14), (0, 0), DEFAULT)
    check_plan(wide, 1, 12_782, DEFAULT)
    with pytest.raises(VisionError, match="12783 source rows") as refused:
        check_plan(wide, 1, 12_783, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "plan.resize_width")


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_a_source_without_pixels_is_refused(size):
    with pytest.raises(VisionError, match=f"{size[0]}x{size[1]}") as refused:
        check_plan(LEGAL, *size, DEFAULT)
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_PLAN, "source")
