"""`interlock pools`."""

import json

from interlock.pools import POOL_NAMES, wire_name


def test_every_pool_is_listed_with_its_number(invoke):
    result = invoke("pools")
    assert result.exit_code == 0
    heading, *rows = [line.split() for line in result.stdout.splitlines()]
    assert heading == ["NAME", "ENUM", "NUMBER"]
    assert [(name, int(number)) for name, _, number in rows] == [(wire_name(pool), pool) for pool in POOL_NAMES]
    assert ["deepseek_v4_c4_rope", "POOL_NAME_DEEPSEEK_V4_C4_ROPE", "16"] in rows


def test_json_has_the_same(invoke):
    pools = json.loads(invoke("pools", "--json").stdout)["pools"]
    assert len(pools) == 23
    assert pools[0] == {"name": "kv", "enum": "POOL_NAME_KV", "number": 1}
