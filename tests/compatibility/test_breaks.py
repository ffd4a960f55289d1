"""A change that would break clients of the last release is found, whatever it is; one that would not is let pass."""

import shutil
from pathlib import Path

import pytest

from interlock.topology import contract
from interlock_bootstrap import pages
from scripts.compatibility import breaks, releases
from scripts.make_vectors.meanings import meaning_files

ROOT = Path(__file__).parents[2]
BOOTSTRAP = "protos/interlock/bootstrap/v1/bootstrap.proto"
BOOTSTRAP_SERVICE = "protos/interlock/bootstrap/v1/bootstrap_service.proto"
POOLS = "protos/interlock/kv/v1/pool_name.proto"
PREPROCESS = "protos/interlock/preprocess/v1/preprocess.proto"
REASONS = "vectors/reasons.json"
DEFAULTS = "vectors/defaults.json"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the check reads."""
    for folder in ("protos", "vectors"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for path in ("buf.yaml", *(path.relative_to(ROOT) for path in ROOT.glob("services/**/*.proto"))):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def change(tree: Path, path: str, before: str, after: str) -> None:
    text = (tree / path).read_text()
    assert text.count(before) == 1, before
    (tree / path).write_text(text.replace(before, after))


def test_the_tree_as_it_is_breaks_nothing(tree):
    assert breaks(tree) == breaks(ROOT) == []


@pytest.mark.parametrize(
    ("path", "before", "after", "told"),
    [
        pytest.param(
            BOOTSTRAP,
            "uint32 page_size = 6;",
            "uint32 page_size = 16;",
            'Previously present field "6" with name "page_size" on message "Route" was deleted.',
            id="a renumbered field",
        ),
        pytest.param(
            POOLS,
            "  // KV cache of the draft (speculative) model.\n  POOL_NAME_DRAFT = 21;\n",
            "",
            'Previously present enum value "21" on enum "PoolName" was deleted.',
            id="a removed enum value",
        ),
        pytest.param(
            BOOTSTRAP,
            "optional uint64 expected_revision = 4;",
            "uint64 expected_revision = 4;",
            'Field "4" with name "expected_revision" on message "RegisterRouteRequest" changed cardinality',
            id="a changed default: absent becomes 0",
        ),
        pytest.param(
            PREPROCESS,
            "  EXIF_ORIENTATION_UNSPECIFIED = 0;\n  // Take the pixels as stored.\n  EXIF_ORIENTATION_IGNORE = 1;",
            "  EXIF_ORIENTATION_IGNORE = 0;\n  // Take the pixels as stored.\n  EXIF_ORIENTATION_UNSPECIFIED = 1;",
            'Enum value "0" on enum "ExifOrientation" changed name',
            id="a changed default: another value of the enum is 0",
        ),
        pytest.param(
            DEFAULTS,
            '"follow_bootstrap_room"',
            '"round_robin"',
            "vectors/defaults.json: field interlock.bootstrap.v1.Route.load_balance_method was",
            id="a changed default: absent means another value",
        ),
        pytest.param(
            BOOTSTRAP,
            "uint64 incarnation = 2;\n  // Sizes of the whole",
            "int64 incarnation = 2;\n  // Sizes of the whole",
            'Field "2" with name "incarnation" on message "Route" changed type',
            id="another type",
        ),
        pytest.param(
            BOOTSTRAP,
            "string rank_ip = 4;",
            "string rank_address = 4;",
            'Field "4" with name "rank_address" on message "Route" changed option "json_name"',
            id="another name, which JSON and every client's source has",
        ),
        pytest.param(
            POOLS,
            "POOL_NAME_MAMBA = 2;",
            "POOL_NAME_STATE_SPACE = 2;",
            'Enum value "2" on enum "PoolName" changed name',
            id="another wire string of a pool",
        ),
        pytest.param(
            BOOTSTRAP,
            "uint32 dp_rank = 2;",
            "repeated uint32 dp_rank = 2;",
            'Field "2" with name "dp_rank" on message "RoomAssignment" changed cardinality',
            id="one value becomes many",
        ),
        pytest.param(
            BOOTSTRAP_SERVICE,
            "rpc GetRankInfo(GetRankInfoRequest) returns (GetRankInfoResponse);",
            "rpc GetRankAddress(GetRankInfoRequest) returns (GetRankInfoResponse);",
            'Previously present RPC "GetRankInfo" on service "BootstrapService" was deleted.',
            id="a renamed method",
        ),
        pytest.param(
            BOOTSTRAP_SERVICE,
            "rpc KeepAlive(stream KeepAliveRequest)",
            "rpc KeepAlive(KeepAliveRequest)",
            'RPC "KeepAlive" on service "BootstrapService" changed from client streaming',
            id="a stream becomes one message",
        ),
        pytest.param(
            REASONS,
            '"reason": "STALE_INSTANCE"',
            '"reason": "OLD_INSTANCE"',
            "vectors/reasons.json: reason STALE_INSTANCE is gone",
            id="a reason that is gone",
        ),
        pytest.param(
            REASONS,
            '"reason": "REVISION_CONFLICT",\n  "code": 10',
            '"reason": "REVISION_CONFLICT",\n  "code": 9',
            "vectors/reasons.json: reason REVISION_CONFLICT was",
            id="another status of a reason",
        ),
    ],
)
def test_a_break_is_found_and_named(tree, path, before, after, told):
    change(tree, path, before, after)
    found = breaks(tree)
    assert any(told in line for line in found), found


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (
            BOOTSTRAP,
            "optional uint32 prefill_http_port = 15;",
            "optional uint32 prefill_http_port = 15;\n  string z = 16;",
        ),
        (POOLS, "POOL_NAME_DRAFT_SWA = 23;", "POOL_NAME_DRAFT_SWA = 23;\n  POOL_NAME_NEW = 24;"),
        (
            BOOTSTRAP_SERVICE,
            "rpc ForceEpoch(",
            "rpc GetGroup(GetRankInfoRequest) returns (GetRankInfoResponse);\n  rpc ForceEpoch(",
        ),
        (BOOTSTRAP, "string rank_ip = 4;", "string rank_ip = 4 [deprecated = true];"),
        (REASONS, "[\n", '[\n {"reason": "NEW", "code": 3, "code_name": "INVALID_ARGUMENT"},\n'),
    ],
    ids=["a new field", "a new enum value", "a new method", "a deprecated field", "a new reason"],
)
def test_what_breaks_nobody_is_let_pass(tree, path, before, after):
    change(tree, path, before, after)
    assert breaks(tree) == []


@pytest.mark.parametrize(
    ("module", "name", "value", "field"),
    [
        (contract, "DEFAULT_LOAD_BALANCE_METHOD", "round_robin", "interlock.bootstrap.v1.Route.load_balance_method"),
        (pages, "DEFAULT_PAGE", 50, "interlock.bootstrap.v1.ListGroupsRequest.page_size"),
    ],
)
def test_a_default_that_is_changed_in_the_code_shows_in_the_vectors(tree, monkeypatch, module, name, value, field):
    monkeypatch.setattr(module, name, value)
    made = meaning_files()["defaults.json"]
    assert made != (ROOT / DEFAULTS).read_bytes()
    (tree / DEFAULTS).write_bytes(made)
    (found,) = breaks(tree)
    assert found.startswith(f"{DEFAULTS}: field {field} was ")


def test_releases_are_in_the_order_of_their_numbers(tree):
    for version in ("0.10.0", "0.9.0"):
        shutil.copytree(tree / "protos" / "releases" / "0.1.0", tree / "protos" / "releases" / version)
    assert releases(tree)[-2:] == ["0.9.0", "0.10.0"]
