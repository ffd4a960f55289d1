"""Between the values of this package and protobuf messages, both ways.

Reading a message raises `InvalidFieldsError` for what a value cannot even hold: a missing required message, a layout
that is too large, pools that do not exist. All other checks are those of `transition`, which sees every value; where
reading fails, they are run as well, so that a caller learns every fault at once.
"""

from collections.abc import Sequence

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import NULL_VALUE

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.kv.v1 import spec_layout_pb2 as kv
from interlock.kv.v1.pool_name_pb2 import PoolName
from interlock.pools import POOL_NAMES
from interlock.topology.compatibility import Incompatibility
from interlock.topology.limits import MAX_LAYOUT_BYTES
from interlock.topology.readiness import PrefillServerInfo
from interlock.topology.state import InvalidFieldsError
from interlock.topology.transition import DeregisterRoute, ForceEpoch, RegisterRoute, deregister_faults
from interlock.topology.validation import (
    DEFAULT_GROUP,
    checked_route,
    decode_server_faults,
    group_faults,
    instance_faults,
)
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

# Values


def key_message(key: RankKey) -> pb.RankKey:
    return pb.RankKey(dp=key.dp, cp=key.cp, tp=key.tp, pp=key.pp)


def key_from_message(message: pb.RankKey) -> RankKey:
    return RankKey(message.dp, message.cp, message.tp, message.pp)


def sizes_message(sizes: ParallelSizes) -> pb.ParallelSizes:
    return pb.ParallelSizes(dp=sizes.dp, cp=sizes.cp, tp=sizes.tp, pp=sizes.pp)


def sizes_from_message(message: pb.ParallelSizes) -> ParallelSizes:
    return ParallelSizes(message.dp, message.cp, message.tp, message.pp)


def instance_message(instance: Instance | None) -> pb.Instance | None:
    return None if instance is None else pb.Instance(id=instance.id, started_at=instance.started_at)


def instance_from_message(message: pb.Instance) -> Instance:
    return Instance(message.id, message.started_at)


def declaration_message(declaration: Declaration) -> kv.SpecLayoutDeclaration | None:
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
        extra_json=tuple(sorted(layout.extra_json.items())),
    )


def route_message(route: Route) -> pb.Route:
    return pb.Route(
        key=key_message(route.key),
        incarnation=route.incarnation,
        sizes=sizes_message(route.sizes),
        rank_ip=route.rank_ip,
        rank_port=route.rank_port,
        page_size=route.page_size,
        kv_cache_dtype=route.kv_cache_dtype,
        kv_layout=route.kv_layout,
        dsv41_spec_layout=declaration_message(route.dsv41_spec_layout),
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
        InvalidFieldsError: no route can be made of it.
    """
    faults: list[tuple[str, str]] = []
    route = _read_route(message, path, faults)
    if faults:
        raise InvalidFieldsError((*faults, *checked_route(route, path)[1]))
    return route


def _read_route(message: pb.Route, path: str, faults: list[tuple[str, str]]) -> Route:
    _require(message, "key", path, faults)
    return Route(
        key=key_from_message(message.key),
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


def _require(message: Message, field: str, path: str, faults: list[tuple[str, str]]) -> None:
    if not message.HasField(field):
        faults.append((f"{path}.{field}" if path else field, "required"))


def _read_declaration(message: kv.SpecLayoutDeclaration, path: str, faults: list[tuple[str, str]]) -> Declaration:
    size = message.ByteSize()
    if size > MAX_LAYOUT_BYTES:
        faults.append((path, f"must be at most {MAX_LAYOUT_BYTES} bytes; got {size}"))
        return None
    if message.none != NULL_VALUE:
        faults.append((f"{path}.none", f"{message.none} is no number of NullValue"))
    return declaration_from_message(message)


def _read_pools(
    numbers: Sequence[PoolName.ValueType], path: str, faults: list[tuple[str, str]]
) -> tuple[PoolName.ValueType, ...]:
    if len(numbers) > len(POOL_NAMES):
        faults.append((path, f"must name each pool at most once; got {len(numbers)} names"))
        return ()
    faults.extend(
        (f"{path}[{at}]", f"{pool} is no pool of PoolName") for at, pool in enumerate(numbers) if pool not in POOL_NAMES
    )
    return tuple(pool for pool in numbers if pool in POOL_NAMES)


def decode_server_message(server: DecodeServer) -> pb.DecodeServer:
    return pb.DecodeServer(
        page_size=server.page_size,
        kv_cache_dtype=server.kv_cache_dtype,
        kv_layout=server.kv_layout,
        dsv41_spec_layout=declaration_message(server.dsv41_spec_layout),
        sizes=sizes_message(server.sizes),
        pools=server.pools,
    )


def prefill_server_info_message(info: PrefillServerInfo) -> pb.PrefillServerInfo:
    return pb.PrefillServerInfo(
        sizes=sizes_message(info.sizes),
        page_size=info.page_size,
        kv_cache_dtype=info.kv_cache_dtype,
        kv_layout=info.kv_layout,
        dsv41_spec_layout=declaration_message(info.dsv41_spec_layout),
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


def incompatibility_message(found: Incompatibility) -> pb.Incompatibility:
    return pb.Incompatibility(
        field=found.field,
        prefill_value=found.prefill_value,
        decode_value=found.decode_value,
        message=found.message,
    )


def incompatibility_from_message(message: pb.Incompatibility) -> Incompatibility:
    return Incompatibility(message.field, message.prefill_value, message.decode_value, message.message)


# Requests


def group_from_text(group: str) -> str:
    """The group that a request names; empty is `default`.

    Raises:
        InvalidFieldsError: it is no DNS label.
    """
    name = group or DEFAULT_GROUP
    if faults := tuple(group_faults(name)):
        raise InvalidFieldsError(faults)
    return name


def register_route_from_message(message: pb.RegisterRouteRequest) -> tuple[str, RegisterRoute]:
    """Group and request. The lease is not read: it is no matter of these rules.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    group = message.group or DEFAULT_GROUP
    faults = list(group_faults(group))
    route = _read_route(message.route, "route", faults)
    instance = instance_from_message(message.instance)
    if faults:
        raise InvalidFieldsError((*faults, *checked_route(route)[1], *instance_faults(instance, "instance")))
    expected = message.expected_revision if message.HasField("expected_revision") else None
    return group, RegisterRoute(route, instance, expected)


def deregister_route_from_message(message: pb.DeregisterRouteRequest) -> tuple[str, DeregisterRoute]:
    """Group and request.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    group = message.group or DEFAULT_GROUP
    faults = list(group_faults(group))
    _require(message, "key", "", faults)
    request = DeregisterRoute(
        key_from_message(message.key), instance_from_message(message.instance), message.incarnation
    )
    if faults:
        raise InvalidFieldsError((*faults, *deregister_faults(request)))
    return group, request


def force_epoch_from_message(message: pb.ForceEpochRequest) -> tuple[str, ForceEpoch]:
    """Group and request.

    Raises:
        InvalidFieldsError: no request can be made of it.
    """
    floor = instance_from_message(message.floor) if message.HasField("floor") else None
    return group_from_text(message.group), ForceEpoch(floor)


def check_compatibility_from_message(message: pb.CheckCompatibilityRequest) -> tuple[str, DecodeServer]:
    """Group and decode server, all of it checked: no transition sees it.

    Raises:
        InvalidFieldsError: it is at fault.
    """
    group = message.group or DEFAULT_GROUP
    faults = list(group_faults(group))
    server, path = message.decode_server, "decode_server"
    decode_server = DecodeServer(
        page_size=server.page_size,
        sizes=sizes_from_message(server.sizes),
        kv_cache_dtype=server.kv_cache_dtype if server.HasField("kv_cache_dtype") else None,
        kv_layout=server.kv_layout if server.HasField("kv_layout") else None,
        dsv41_spec_layout=_read_declaration(server.dsv41_spec_layout, f"{path}.dsv41_spec_layout", faults),
        pools=_read_pools(server.pools, f"{path}.pools", faults),
    )
    faults += decode_server_faults(decode_server, path)
    if faults:
        raise InvalidFieldsError(tuple(faults))
    return group, decode_server
