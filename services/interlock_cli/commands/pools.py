"""`interlock pools`."""

import click

from interlock_cli.output import echo_json, echo_table, json_option


@click.command()
@json_option
def pools(as_json: bool) -> None:
    """List the KV pool names.

    A prefill rank says with these names which KV pools it transfers, and a decode server which ones it expects. NAME is
    the string on the wire, ENUM and NUMBER are those of interlock.kv.v1.PoolName in the protos.

    \b
    Examples:
      interlock pools
      interlock pools --json
    """
    from interlock.kv.v1.pool_name_pb2 import PoolName
    from interlock.pools import POOL_NAMES, wire_name

    if as_json:
        echo_json({"pools": [{"name": wire_name(p), "enum": PoolName.Name(p), "number": int(p)} for p in POOL_NAMES]})
    else:
        echo_table(["NAME", "ENUM", "NUMBER"], [(wire_name(p), PoolName.Name(p), int(p)) for p in POOL_NAMES])
