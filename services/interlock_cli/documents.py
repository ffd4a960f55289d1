"""The values of `interlock.topology` as `--json` shows them.

Names are those of the protos. What is absent is left out, but for a DSpark layout that is declared none: it is null, as
engines write it. Pools are their wire names.
"""

import dataclasses
import json
from typing import Any

from interlock.pools import wire_name
from interlock.topology import (
    DeclaredNone,
    EpochStarted,
    Event,
    RouteRegistered,
    RouteRemoved,
    SharedValues,
    SpecLayout,
)
from interlock.topology.contract import UNDECLARABLE_FIELDS, declared
from interlock_cli.spec_layouts import spec_layout_document


def document(value: object) -> Any:
    """A frozen value of the topology as JSON values."""
    if isinstance(value, SpecLayout):
        return spec_layout_document(value)
    if isinstance(value, DeclaredNone):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if "pools" in fields:
            fields["pools"] = [wire_name(pool) for pool in fields["pools"]]
        return {name: document(v) for name, v in fields.items() if v is not None}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, tuple | list):
        return [document(member) for member in value]
    return value


def event_document(event: Event) -> dict[str, Any]:
    """An event of a watch: what happened, and its values."""
    match event:
        case EpochStarted():
            kind = "epoch_started"
        case RouteRegistered():
            kind = "route_registered"
        case RouteRemoved():
            kind = "route_removed"
    return {"event": kind, **document(event)}


def contract_rows(shared: SharedValues) -> list[tuple[str, object]]:
    """What ranks share, as rows of a table: the sizes one by one, and what is undeclared as such."""
    rows: list[tuple[str, object]] = [(f"sizes.{name}", size) for name, size in shared.sizes._asdict().items()]
    others = (field.name for field in dataclasses.fields(shared) if field.name != "sizes")
    return [*rows, *((name, _shared_cell(name, getattr(shared, name))) for name in others)]


def _shared_cell(name: str, value: Any) -> object:
    if name in UNDECLARABLE_FIELDS and not declared(value):
        return "undeclared"
    match value:
        case DeclaredNone():
            return "none"
        case SpecLayout():
            return json.dumps(spec_layout_document(value))
        case tuple():
            return ", ".join(map(wire_name, value))
        case _:
            return value
