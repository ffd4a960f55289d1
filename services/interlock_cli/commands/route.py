"""`interlock route`: what is registered in a Bootstrap service."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock_cli.commands.route_keep import DEFAULT_LEASE_TTL
from interlock_cli.commands.route_keep import keep as keep_registered
from interlock_cli.commands.route_list import list_routes
from interlock_cli.commands.route_watch import watch
from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.ranks import (
    COUNT,
    DIMENSIONS,
    chosen_pools,
    chosen_spec_layout,
    key_options,
    layout_options,
    size_options,
)
from interlock_cli.services import bootstrap_at, bootstrap_options, refused, snapshot_of

if TYPE_CHECKING:
    from interlock.client import Registered
    from interlock.topology import GroupState, Instance, RankKey


@click.group(cls=CommandGroup)
def route() -> None:
    """Register, remove, list and follow routes.

    A route is what one rank of a prefill server (a group) registers: its place among the ranks, its address, and the
    values that all ranks of the group must share. `interlock group` shows groups as wholes.

    \b
    Examples:
      interlock route list prefill-a
      interlock route watch prefill-a
    """


@route.command()
@click.argument("group")
@key_options
@size_options
@click.option("--rank-ip", required=True, metavar="HOST", help="Where the rank listens: an IP address or host name.")
@click.option("--rank-port", required=True, type=COUNT, metavar="PORT", help="Port beside --rank-ip.")
@layout_options
@click.option("--load-balance-method", metavar="NAME", help="How requests find their DP rank.")
@click.option(
    "--enable-dsa-cache-layer-split/--disable-dsa-cache-layer-split",
    default=None,
    help="Whether DSA caches are split by layer over CP ranks.",
)
@click.option(
    "--enable-kv-cache-sharding/--disable-kv-cache-sharding",
    default=None,
    help="Whether the KV cache is sharded over ranks.",
)
@click.option("--decode-allocation-policy", metavar="NAME", help="When decode allocates its KV pages.")
@click.option("--prefill-http-port", type=COUNT, metavar="PORT", help="Port of the rank's HTTP server.")
@click.option("--instance-id", metavar="ID", help="Launch that the rank belongs to; needs --started-at.")
@click.option(
    "--started-at",
    type=COUNT,
    metavar="NS",
    help="When that launch began, in Unix nanoseconds. Without the two: the launch in INTERLOCK_INSTANCE, else the one "
    "that is served, else a new one.",
)
@click.option(
    "--incarnation", type=COUNT, metavar="NS", help="Start of the rank's process, in Unix nanoseconds. Default: now."
)
@click.option(
    "--expected-revision",
    type=COUNT,
    metavar="REVISION",
    help="Compare-and-swap: refuse unless the group is at this revision; 0: unless it has no live route.",
)
@click.option(
    "--lease-ttl",
    type=float,
    metavar="SECONDS",
    help="The route goes by itself when not renewed for this long; 1 to 86400. Not given: it stays until removed.",
)
@click.option(
    "--keep",
    is_flag=True,
    help=f"Renew the lease (of {DEFAULT_LEASE_TTL:g} s if not given) until Ctrl-C, then remove the route.",
)
@bootstrap_options
@json_option
def register(
    group: str,
    address: str,
    timeout: float,
    as_json: bool,
    rank_ip: str,
    rank_port: int,
    page_size: int,
    kv_cache_dtype: str | None,
    kv_layout: str | None,
    spec_layout: Path | None,
    no_spec_layout: bool,
    pools: tuple[str, ...],
    load_balance_method: str | None,
    enable_dsa_cache_layer_split: bool | None,
    enable_kv_cache_sharding: bool | None,
    decode_allocation_policy: str | None,
    prefill_http_port: int | None,
    instance_id: str | None,
    started_at: int | None,
    incarnation: int | None,
    expected_revision: int | None,
    lease_ttl: float | None,
    keep: bool,
    **dimensions: int,
) -> None:
    """Register one rank of GROUP.

    The answer says at which REVISION and in which EPOCH the route stands, and how many routes of the group are
    REGISTERED of those EXPECTED. A rank that does not fit its group is refused: each value that differs is shown with
    the one that stands and the rank that holds it. Registering the same again changes nothing.

    With --keep the command stays, renews the lease, and registers the rank again should the server lose it, as a rank
    does that uses the client SDK. It ends when a newer launch or process takes over, or by Ctrl-C.

    \b
    Examples:
      interlock route register prefill-a --tp 0 --tp-size 2 --rank-ip 10.0.0.1 --rank-port 9000 --page-size 64
      interlock route register prefill-a --tp 1 --tp-size 2 --rank-ip 10.0.0.2 --rank-port 9000 --page-size 64
      interlock route register prefill-b --rank-ip 10.0.0.3 --rank-port 9000 --page-size 64 --expected-revision 0
    """
    from interlock.client import ContractMismatchError, RevisionConflictError, instance_from_environment
    from interlock.topology import Instance, ParallelSizes, RankKey, Route
    from interlock_cli.documents import document

    if (instance_id is None) != (started_at is None):
        raise click.UsageError("--instance-id and --started-at go together")
    if keep and expected_revision is not None:
        raise click.UsageError("--keep and --expected-revision exclude each other")
    offered = Route(
        key=RankKey(**{name: dimensions[name] for name in DIMENSIONS}),
        incarnation=time.time_ns() if incarnation is None else incarnation,
        sizes=ParallelSizes(**{name: dimensions[f"{name}_size"] for name in DIMENSIONS}),
        rank_ip=rank_ip,
        rank_port=rank_port,
        page_size=page_size,
        kv_cache_dtype=kv_cache_dtype,
        kv_layout=kv_layout,
        dsv41_spec_layout=chosen_spec_layout(spec_layout, no_spec_layout),
        load_balance_method=load_balance_method,
        enable_dsa_cache_layer_split=enable_dsa_cache_layer_split,
        enable_kv_cache_sharding=enable_kv_cache_sharding,
        decode_allocation_policy=decode_allocation_policy,
        pools=chosen_pools(pools),
        prefill_http_port=prefill_http_port,
    )
    with bootstrap_at(address, timeout) as client:
        if instance_id is not None and started_at is not None:
            instance = Instance(instance_id, started_at)
        else:
            instance = instance_from_environment() or _current_or_new_instance(
                snapshot_of(client, group, timeout).state
            )
        tell = partial(_tell, as_json, group, offered.key, instance)
        try:
            if keep:
                ttl = DEFAULT_LEASE_TTL if lease_ttl is None else lease_ttl
                keep_registered(client.registration(offered, instance, group=group, lease_ttl=ttl), tell)
            else:
                tell(
                    client.register_route(
                        offered, instance, group=group, expected_revision=expected_revision, lease_ttl=lease_ttl
                    )
                )
        except ContractMismatchError as error:
            differences = error.mismatch.differences
            if not as_json:
                echo_table(
                    ["FIELD", "STANDING", "OFFERED", "HELD BY"],
                    [(d.field, d.standing_value, d.offered_value, d.held_by) for d in differences],
                    title=f"does not fit group {group}; what differs:",
                )
            end = refused(error)
            end.field = ", ".join(difference.field for difference in differences)
            end.facts["mismatches"] = document(differences)
            raise end from None
        except RevisionConflictError as error:
            end = refused(error)
            end.facts["conflict"] = document(error.conflict)
            raise end from None


def _tell(as_json: bool, group: str, key: "RankKey", instance: "Instance", registered: "Registered") -> None:
    """Shows how a rank stands that was registered."""
    from interlock_cli.documents import document

    if as_json:
        echo_json({"group": group, "instance": document(instance), **document(registered)})
        return
    echo_table(
        ["GROUP", "RANK", "REVISION", "EPOCH", "REGISTERED", "EXPECTED", "READY"],
        [
            (
                group,
                key,
                registered.revision,
                registered.epoch,
                registered.registered,
                registered.expected,
                registered.ready,
            )
        ],
    )


@route.command()
@click.argument("group")
@key_options
@click.option("--instance-id", metavar="ID", help="Launch that the rank belongs to; needs --started-at.")
@click.option(
    "--started-at", type=COUNT, metavar="NS", help="When that launch began. Without the two: the one that is served."
)
@click.option("--incarnation", type=COUNT, metavar="NS", help="As it was registered. Default: whatever stands.")
@bootstrap_options
@json_option
def deregister(
    group: str,
    address: str,
    timeout: float,
    as_json: bool,
    instance_id: str | None,
    started_at: int | None,
    incarnation: int | None,
    **dimensions: int,
) -> None:
    """Remove one rank's route from GROUP.

    Only a route of exactly this launch and incarnation is removed. That none stands is no error: REMOVED says no.

    \b
    Examples:
      interlock route deregister prefill-a --tp 1
      interlock route deregister prefill-a --tp 1 --json
    """
    from interlock.client import Deregistered
    from interlock.topology import Instance, RankKey
    from interlock_cli.documents import document

    if (instance_id is None) != (started_at is None):
        raise click.UsageError("--instance-id and --started-at go together")
    key = RankKey(**dimensions)
    with bootstrap_at(address, timeout) as client:
        standing = snapshot_of(client, group, timeout)
        instance = standing.state.instance
        if instance_id is not None and started_at is not None:
            instance = Instance(instance_id, started_at)
        if incarnation is None and key in standing.routes:
            incarnation = standing.routes[key].incarnation
        if instance is None or incarnation is None:
            removed = Deregistered(False, standing.state.revision)
        else:
            removed = client.deregister_route(key, instance, incarnation, group=group)
    if as_json:
        echo_json({"group": group, "key": document(key), **document(removed)})
    else:
        echo_table(["GROUP", "RANK", "REMOVED", "REVISION"], [(group, key, removed.removed, removed.revision)])


def _current_or_new_instance(state: "GroupState") -> "Instance":
    """The launch that a group serves, else one that it will accept."""
    from interlock.client.launch import new_instance

    return state.instance if state.instance is not None and state.registered else new_instance(state.floor)


route.add_command(list_routes)
route.add_command(watch)
