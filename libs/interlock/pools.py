"""KV pool names: the proto enum `interlock.kv.v1.PoolName` and the strings that engines put on the wire.

The wire string is derived from the enum by rule (`POOL_NAME_DEEPSEEK_V4_C1` <-> `deepseek_v4_c1`). There is no second
table: a pool added to the proto is known here after `make stubs`.
"""

from interlock.kv.v1.pool_name_pb2 import POOL_NAME_UNSPECIFIED, PoolName

_PREFIX = "POOL_NAME_"

POOL_NAMES: tuple[PoolName.ValueType, ...] = tuple(
    number for number in PoolName.values() if number != POOL_NAME_UNSPECIFIED
)
"""Every pool, in the order of the enum's numbers."""


def wire_name(pool: PoolName.ValueType) -> str:
    """The wire string of a pool, for example `deepseek_v4_c1`.

    Raises:
        ValueError: `pool` is unspecified or no number of the enum; the message names it.
    """
    if pool not in POOL_NAMES:
        raise ValueError(f"{pool!r} is no pool name; known are the numbers {POOL_NAMES[0]} to {POOL_NAMES[-1]}")
    return PoolName.Name(pool).removeprefix(_PREFIX).lower()


_POOL_OF_WIRE_NAME = {wire_name(pool): pool for pool in POOL_NAMES}


def parse_pool_name(name: str) -> PoolName.ValueType:
    """The pool of a wire string. Exact: no case folding, no trimming, no prefix.

    Raises:
        ValueError: no pool has this wire string; the message names it.
    """
    try:
        return _POOL_OF_WIRE_NAME[name]
    except KeyError:
        raise ValueError(f"unknown pool name {name!r}; `interlock pools` lists the known ones") from None
