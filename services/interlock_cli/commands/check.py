"""`interlock check`."""

from pathlib import Path

import click

from interlock_cli.errors import ExitCode, ended
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.ranks import DIMENSIONS, chosen_pools, chosen_spec_layout, layout_options, size_options
from interlock_cli.services import bootstrap_at, bootstrap_options


@click.command()
@click.argument("group")
@layout_options
@size_options
@bootstrap_options
@json_option
def check(
    group: str,
    address: str,
    timeout: float,
    as_json: bool,
    page_size: int,
    kv_cache_dtype: str | None,
    kv_layout: str | None,
    spec_layout: Path | None,
    no_spec_layout: bool,
    pools: tuple[str, ...],
    **sizes: int,
) -> None:
    """Check whether a decode server fits.

    It is compared with a prefill server (GROUP), before it starts; the options are the decode server's own values. Each
    violation is a row: the FIELD, what PREFILL has, what DECODE has, and why the two do not go together; the exit code
    is then 1. A group that is not ready is judged by what its ranks declared so far.

    \b
    Examples:
      interlock check prefill-a --page-size 64 --tp-size 2
      interlock check prefill-a --page-size 64 --kv-cache-dtype fp8_e4m3 --pool kv --pool swa
      interlock check prefill-a --page-size 64 --spec-layout layout.json --json
    """
    from interlock.topology import DecodeServer, ParallelSizes
    from interlock_cli.documents import document

    decode_server = DecodeServer(
        page_size=page_size,
        sizes=ParallelSizes(**{name: sizes[f"{name}_size"] for name in DIMENSIONS}),
        kv_cache_dtype=kv_cache_dtype,
        kv_layout=kv_layout,
        dsv41_spec_layout=chosen_spec_layout(spec_layout, no_spec_layout),
        pools=chosen_pools(pools),
    )
    with bootstrap_at(address, timeout) as client:
        compatibility = client.check_compatibility(decode_server, group=group)
    violations = compatibility.incompatibilities
    if as_json:
        echo_json({"group": group, "fits": not violations, **document(compatibility)})
    elif violations:
        echo_table(
            ["FIELD", "PREFILL", "DECODE", "WHY"],
            [(v.field, v.prefill_value, v.decode_value, v.message) for v in violations],
        )
    else:
        so_far = "" if compatibility.ready else ", as far as its ranks have declared: it is not ready yet"
        click.echo(f"fits group {group} at revision {compatibility.revision}{so_far}")
    if violations:
        ended(ExitCode.FAILED)
