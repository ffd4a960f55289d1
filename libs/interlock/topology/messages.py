"""Between the values of this package and protobuf messages, both ways.

What no value can hold (a rank without a key, a layout that is too large, pools that do not exist) is a fault of the
message and refused on reading. Everything else is checked by `transition`, which sees every value.
"""

from collections.abc import Sequence

from google.protobuf.struct_pb2 import NULL_VALUE

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.kv.v1 import spec_layout_pb2 as kv
from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import POOL_NAMES
from interlock.topology.compatibility import Incompatibility
from interlock.topology.events import EpochStarted, Event, RouteRegistered, RouteRemoved
from interlock.topology.limits import MAX_LAYOUT_BYTES, MAX_LISTED_KEYS
from interlock.topology.readiness import GroupState, PrefillServerInfo, group_state
from interlock.topology.state import InvalidFieldsError, Topology
from interlock.topology.validation import Fault, checked_route
from interlock.topology.values import (
    DECLARED_NONE,
    Declaration,
    DecodeServer,
    Instance,
    ParallelSizes,
    RankKey,
    Route,
    SpecLayout,
)


def rank_key_to_message(key: RankKey) -> pb.RankKey:
    return pb.RankKey(dp=key.dp, cp=key.cp, tp=key.tp, pp=key.pp)


def rank_key_from_message(message: pb.RankKey) -> RankKey:
    return RankKey(message.dp, message.cp, message.tp, message.pp)


def sizes_to_message(sizes: ParallelSizes) -> pb.ParallelSizes:
    return pb.ParallelSizes(dp=sizes.dp, cp=sizes.cp, tp=sizes.tp, pp=sizes.pp)


def sizes_from_message(message: pb.ParallelSizes) -> ParallelSizes:
    return ParallelSizes(message.dp, message.cp, message.tp, message.pp)


def instance_to_message(instance: Instance | None) -> pb.Instance | None:
    return None if instance is None else pb.Instance(id=instance.id, started_at=instance.started_at)


def instance_from_message(message: pb.Instance) -> Instance:
    return Instance(message.id, message.started_at)


def declaration_to_message(declaration: Declaration) -> kv.SpecLayoutDeclaration | None:
    """None for undeclared: the field stays absent."""
    if declaration is None:
        return None
    if not isinstance(declaration, SpecLayout):
        return kv.SpecLayoutDeclaration(none=NULL_VALUE)
    return kv.SpecLayoutDeclaration(
        layout=kv.SpecLayout(
            num_draft_tokens=declaration.num_draft_tokens,
            compression_ratios=declaration.compression_ratios,
            kv_layer_ids=declaration.kv_layer_ids,
            kv_item_lens=declaration.kv_item_lens,
            state_types=declaration.state_types,
            state_item_lens=[kv.StateItemLens(item_lens=row) for row in declaration.state_item_lens],
            extra_json=dict(declaration.extra_json),
        )
    )


def declaration_from_message(message: kv.SpecLayoutDeclaration) -> Declaration:
    """A message with no state set is undeclared, as an absent one is."""
    match message.WhichOneof("state"):
        case None:
            return None
        case "none":
            return DECLARED_NONE
    layout = message.layout
    return SpecLayout(
        num_draft_tokens=layout.num_draft_tokens if layout.HasField("num_draft_tokens") else None,
        compression_ratios=tuple(layout.compression_ratios),
        kv_layer_ids=tuple(layout.kv_layer_ids),
        kv_item_lens=tuple(layout.kv_item_lens),
        state_types=tuple(layout.state_types),
        state_item_lens=tuple(tuple(row.item_lens) for row in layout.state_item_lens),
        extra_json=tuple(layout.extra_json.items()),
    )


def route_to_message(route: Route) -> pb.Route:
    return pb.Route(
        key=rank_key_to_message(route.key),
        incarnation=route.incarnation,
        sizes=sizes_to_message(route.sizes),
        rank_ip=route.rank_ip,
        rank_port=route.rank_port,
        page_size=route.page_size,
        kv_cache_dtype=route.kv_cache_dtype,
        kv_layout=route.kv_layout,
        dsv41_spec_layout=declaration_to_message(route.dsv41_spec_layout),
        load_balance_method=route.load_balance_method,
        enable_dsa_cache_layer_split=route.enable_dsa_cache_layer_split,
        enable_kv_cache_sharding=route.enable_kv_cache_sharding,
        decode_allocation_policy=route.decode_allocation_policy,
        pools=route.pools,
        prefill_http_port=route.prefill_http_port,
    )


def route_from_message(message: pb.Route, path: str = "route") -> Route:
    """A route, its values not yet checked.

    Raises:
        InvalidFieldsError: no route can be made of it; names every fault, those of its values too.
    """
    faults: list[Fault] = []
    route = read_route(message, path, faults)
    if faults:
        raise InvalidFieldsError((*faults, *checked_route(route, path)[1]))
    return route


def read_route(message: pb.Route, path: str, faults: list[Fault]) -> Route:
    """A route; what no value can hold is left out and added to `faults`."""
    if not message.HasField("key"):
        faults.append((f"{path}.key", "required"))
    return Route(
        key=rank_key_from_message(message.key),
        incarnation=message.incarnation,
        sizes=sizes_from_message(message.sizes),
        rank_ip=message.rank_ip,
        rank_port=message.rank_port,
        page_size=message.page_size,
        kv_cache_dtype=message.kv_cache_dtype if message.HasField("kv_cache_dtype") else None,
        kv_layout=message.kv_layout if message.HasField("kv_layout") else None,
        dsv41_spec_layout=_read_declaration(message.dsv41_spec_layout, f"{path}.dsv41_spec_layout", faults),
        load_balance_method=message.load_balance_method if message.HasField("load_balance_method") else None,
        enable_dsa_cache_layer_split=(
            message.enable_dsa_cache_layer_split if message.HasField("enable_dsa_cache_layer_split") else None
        ),
        enable_kv_cache_sharding=(
            message.enable_kv_cache_sharding if message.HasField("enable_kv_cache_sharding") else None
        ),
        decode_allocation_policy=(
            message.decode_allocation_policy if message.HasField("decode_allocation_policy") else None
        ),
        pools=_read_pools(message.pools, f"{path}.pools", faults),
        prefill_http_port=message.prefill_http_port if message.HasField("prefill_http_port") else None,
    )


def _read_declaration(message: kv.SpecLayoutDeclaration, path: str, faults: list[Fault]) -> Declaration:
    size = message.ByteSize()
    if size > MAX_LAYOUT_BYTES:
        faults.append((path, f"must be at most {MAX_LAYOUT_BYTES} bytes; got {size}"))
        return None
    if message.none != NULL_VALUE:
        faults.append((f"{path}.none", f"{message.none} is no number of NullValue"))
    return declaration_from_message(message)


def _read_pools(
    numbers: Sequence[PoolName.ValueType], path: str, faults: list[Fault]
) -> tuple[PoolName.ValueType, ...]:
    if len(numbers) > len(POOL_NAMES):
        faults.append((path, f"must name each pool at most once; got {len(numbers)} names"))
        return ()
    unknown = [
        (f"{path}[{at}]", f"{pool} is no number of PoolName")
        for at, pool in enumerate(numbers)
        if pool not in POOL_NAMES
    ]
    faults.extend(unknown)
    return () if unknown else tuple(numbers)


def decode_server_to_message(server: DecodeServer) -> pb.DecodeServer:
    return pb.DecodeServer(
        page_size=server.page_size,
        kv_cache_dtype=server.kv_cache_dtype,
        kv_layout=server.kv_layout,
        dsv41_spec_layout=declaration_to_message(server.dsv41_spec_layout),
        sizes=sizes_to_message(server.sizes),
        pools=server.pools,
    )


def read_decode_server(message: pb.DecodeServer, path: str, faults: list[Fault]) -> DecodeServer:
    """A decode server; what no value can hold is left out and added to `faults`."""
    return DecodeServer(
        page_size=message.page_size,
        sizes=sizes_from_message(message.sizes),
        kv_cache_dtype=message.kv_cache_dtype if message.HasField("kv_cache_dtype") else None,
        kv_layout=message.kv_layout if message.HasField("kv_layout") else None,
        dsv41_spec_layout=_read_declaration(message.dsv41_spec_layout, f"{path}.dsv41_spec_layout", faults),
        pools=_read_pools(message.pools, f"{path}.pools", faults),
    )


def prefill_server_info_to_message(info: PrefillServerInfo) -> pb.PrefillServerInfo:
    return pb.PrefillServerInfo(
        sizes=sizes_to_message(info.sizes),
        page_size=info.page_size,
        kv_cache_dtype=info.kv_cache_dtype,
        kv_layout=info.kv_layout,
        dsv41_spec_layout=declaration_to_message(info.dsv41_spec_layout),
        load_balance_method=info.load_balance_method,
        enable_dsa_cache_layer_split=info.enable_dsa_cache_layer_split,
        enable_kv_cache_sharding=info.enable_kv_cache_sharding,
        decode_allocation_policy=info.decode_allocation_policy,
        pools=info.pools,
        prefill_http_port=info.prefill_http_port,
    )


def prefill_server_info_from_message(message: pb.PrefillServerInfo) -> PrefillServerInfo:
    return PrefillServerInfo(
        sizes=sizes_from_message(message.sizes),
        page_size=message.page_size,
        kv_cache_dtype=message.kv_cache_dtype if message.HasField("kv_cache_dtype") else None,
        kv_layout=message.kv_layout if message.HasField("kv_layout") else None,
        dsv41_spec_layout=declaration_from_message(message.dsv41_spec_layout),
        load_balance_method=message.load_balance_method,
        enable_dsa_cache_layer_split=message.enable_dsa_cache_layer_split,
        enable_kv_cache_sharding=message.enable_kv_cache_sharding,
        decode_allocation_policy=message.decode_allocation_policy,
        pools=tuple(message.pools),
        prefill_http_port=message.prefill_http_port if message.HasField("prefill_http_port") else None,
    )


def incompatibility_to_message(found: Incompatibility) -> pb.Incompatibility:
    return pb.Incompatibility(
        field=found.field,
        prefill_value=found.prefill_value,
        decode_value=found.decode_value,
        message=found.message,
    )


def incompatibility_from_message(message: pb.Incompatibility) -> Incompatibility:
    return Incompatibility(message.field, message.prefill_value, message.decode_value, message.message)


def group_state_to_message(topology: Topology, limit: int = MAX_LISTED_KEYS) -> pb.GroupState:
    """The state of a group, with at most `limit` keys in each list."""
    state = group_state(topology, limit)
    return pb.GroupState(
        group=state.group,
        revision=state.revision,
        epoch=state.epoch,
        instance=instance_to_message(state.instance),
        floor=instance_to_message(state.floor),
        registered=state.registered,
        expected=state.expected,
        ready=state.ready,
        missing_keys=map(rank_key_to_message, state.missing_keys),
        missing_count=state.missing_count,
        undeclared_keys=map(rank_key_to_message, state.undeclared_keys),
        undeclared_count=state.undeclared_count,
    )


def group_state_from_message(message: pb.GroupState) -> GroupState:
    return GroupState(
        group=message.group,
        revision=message.revision,
        epoch=message.epoch,
        instance=instance_from_message(message.instance) if message.HasField("instance") else None,
        floor=instance_from_message(message.floor) if message.HasField("floor") else None,
        registered=message.registered,
        expected=message.expected,
        ready=message.ready,
        missing_keys=tuple(map(rank_key_from_message, message.missing_keys)),
        missing_count=message.missing_count,
        undeclared_keys=tuple(map(rank_key_from_message, message.undeclared_keys)),
        undeclared_count=message.undeclared_count,
    )


def event_to_message(event: Event) -> pb.TopologyEvent:
    match event:
        case EpochStarted():
            return pb.TopologyEvent(
                epoch_started=pb.EpochStarted(epoch=event.epoch, instance=instance_to_message(event.instance))
            )
        case RouteRegistered():
            return pb.TopologyEvent(route_registered=pb.RouteRegistered(route=route_to_message(event.route)))
        case RouteRemoved():
            return pb.TopologyEvent(
                route_removed=pb.RouteRemoved(key=rank_key_to_message(event.key), incarnation=event.incarnation)
            )


def event_from_message(message: pb.TopologyEvent) -> Event | None:
    """None: an event of a later version, which this one does not know."""
    match message.WhichOneof("event"):
        case "epoch_started":
            started = message.epoch_started
            instance = instance_from_message(started.instance) if started.HasField("instance") else None
            return EpochStarted(started.epoch, instance)
        case "route_registered":
            return RouteRegistered(route_from_message(message.route_registered.route))
        case "route_removed":
            return RouteRemoved(rank_key_from_message(message.route_removed.key), message.route_removed.incarnation)
        case None:
            return None
