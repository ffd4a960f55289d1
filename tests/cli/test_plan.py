"""`interlock plan`."""

import json

import pytest

from cli.running import error_line


def test_the_known_plans_are_shown(invoke):
    result = invoke("plan", "1x1", "2x3", "1x10000", "10000x1", "28x251", "500X501")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "SIZE     RESIZE    CANVAS    LEFT  TOP  PATCHES  TOKEN GRID  TOKENS",
        "1x1      546x546   546x546      0    0  39x39    13x13          184",
        "2x3      448x672   448x672      0    0  32x48    11x16          194",
        "1x10000  2x21462   42x21462    20    0  3x1533   1x511         1024",
        "10000x1  42882x4   42882x42     0   19  3063x3   1021x1        1024",
        "28x251   182x1631  182x1638     0    4  13x117   5x39           236",
        "500x501  545x546   546x546      0    0  39x39    13x13          184",
    ]


def test_a_size_without_a_legal_plan_is_a_row_with_the_reason_and_exit_code_1(invoke):
    result = invoke("plan", "1x42924", "1600x1200")
    assert (result.exit_code, result.stderr) == (1, "")
    heading, bad, good = result.stdout.splitlines()
    assert heading.endswith("TOKENS  ERROR")
    assert bad.endswith("no legal plan for a picture of 1x42924: the shape is too extreme: "
                        "it would be resized to 0x21462 [NO_LEGAL_PLAN]")  # fmt: skip
    assert good.endswith("1001  -")


def test_json_has_plans_and_errors_in_the_order_asked(invoke):
    result = invoke("plan", "1x42924", "2x3", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["profile"]["patch_size"] == 14
    bad, good = answer["plans"]
    assert (bad["width"], bad["height"], bad["error"]["reason"]) == (1, 42924, "NO_LEGAL_PLAN")
    assert good == {
        "width": 2,
        "height": 3,
        "plan": {
            "canvas_width": 448,
            "canvas_height": 672,
            "resize_width": 448,
            "resize_height": 672,
            "top": 0,
            "left": 0,
            "grid_width": 32,
            "grid_height": 48,
            "token_grid_width": 11,
            "token_grid_height": 16,
            "token_count": 194,
        },
    }


def test_another_published_profile_gives_other_plans(invoke):
    tokens = [
        json.loads(invoke("plan", "1600x1200", "--json", *more).stdout)["plans"][0]["plan"]["token_count"]
        for more in ([], ["--profile", "deepseek-v4.1"], ["--profile", "deepseek-v4-flash-vision-exp"])
    ]
    assert tokens == [1001, 1001, 370]


TOML = "patch_size = 16\ndownsample_ratio = 2\nmax_image_tokens = 256\nmin_pixels = 0\n"
JSON = {"patch_size": 16, "downsample_ratio": 2, "max_image_tokens": 256, "min_pixels": 0}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("profile.toml", TOML + "image_mean = [0.5, 0.5, 0.5]"),
        ("profile.json", json.dumps(JSON)),
        ("profile", json.dumps({**JSON, "max_wh_ratio": None, "image_std": [1, 1, 1]})),
    ],
)
def test_a_profile_file_is_json_or_toml(invoke, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    result = invoke("plan", "160x80", "--profile-file", name)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["160x80", "160x80", "160x80", "0", "0", "10x5", "5x3", "20"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", "", "neither JSON nor, by its name, TOML: Expecting value: line 1 column 1 (char 0) "
                       "[INVALID_PROFILE, field profile]"),
        ("a.json", "[" * 60_000, "neither JSON nor, by its name, TOML"),
        ("a.toml", "patch_size", "neither JSON nor, by its name, TOML"),
        ("a.json", "[]", "expected an object with the profile's values [INVALID_PROFILE, field profile]"),
        ("a.toml", TOML + "patch_sise = 3", "unknown key 'patch_sise'; known are patch_size, downsample_ratio, "
         "max_image_tokens, min_pixels, max_wh_ratio, image_mean, image_std [INVALID_PROFILE, field patch_sise]"),
        ("a.json", "{}", "patch_size is missing [INVALID_PROFILE, field profile.patch_size]"),
        ("a.json", json.dumps({**JSON, "patch_size": 14.0}), "patch_size is 14.0; expected an integer "
         "[INVALID_PROFILE, field profile.patch_size]"),
        ("a.json", json.dumps({**JSON, "patch_size": True}), "patch_size is True; expected an integer "
         "[INVALID_PROFILE, field profile.patch_size]"),
        ("a.json", json.dumps({**JSON, "image_mean": [0, 1]}), "image_mean is [0, 1]; expected three numbers: red, "
         "green, blue [INVALID_PROFILE, field profile.image_mean]"),
        ("a.json", json.dumps({**JSON, "image_mean": [0, 0, 10**400]}), "image_mean has a number beyond any float "
         "[INVALID_PROFILE, field profile.image_mean]"),
        ("a.json", json.dumps({**JSON, "patch_size": 129}), "patch_size is 129; expected 1 to 128 "
         "[INVALID_PROFILE, field profile.patch_size]"),
        ("a.json", " " * 70_000, "more than 65536 bytes, the most that is read"),
    ],
)  # fmt: skip
def test_a_wrong_profile_file_is_refused_with_the_field(invoke, tmp_path, name, text, line):
    (tmp_path / name).write_text(text)
    result = invoke("plan", "1x1", "--profile-file", name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result).startswith(f"{name}: {line}")


def test_an_unknown_profile_is_refused_with_those_there_are(invoke):
    result = invoke("plan", "1x1", "--profile", "nonsuch")
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_line(result) == (
        "no profile is named 'nonsuch'; published are deepseek-v4-flash-vision-exp, deepseek-v4.1 "
        "[UNKNOWN_PROFILE, field profile]"
    )
