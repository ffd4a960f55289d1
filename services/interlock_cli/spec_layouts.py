"""DSpark layouts as JSON, in the form that engines use: an object with the layout, or null for "declared none"."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock_cli.errors import CommandError, printable
from interlock_cli.files import read_bounded

if TYPE_CHECKING:
    from interlock.topology import Declaration, SpecLayout

_MAX_FILE_BYTES = 1024 * 1024
_MAX_NUMBER = 2**64 - 1


def read_spec_layout(file: Path) -> "Declaration":
    """The declaration in a JSON file. Keys that are not known are kept as canonical JSON.

    Raises:
        CommandError: The file cannot be read, or is no layout.
    """
    from interlock.reasons import Reason
    from interlock.topology import DECLARED_NONE, SpecLayout

    def wrong(message: str, key: str = "") -> CommandError:
        field = "dsv41_spec_layout" + (f".{key}" if key else "")
        return CommandError(f"{printable(str(file))}: {message}", reason=Reason.INVALID_FIELD, field=field)

    try:
        values = json.loads(read_bounded(file, _MAX_FILE_BYTES))
    except (ValueError, RecursionError) as error:
        raise wrong(f"no JSON: {error}") from None
    if values is None:
        return DECLARED_NONE
    if not isinstance(values, dict):
        raise wrong("expected an object with the layout, or null for a server that has none")

    def numbers(key: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(n) is int and 0 <= n <= _MAX_NUMBER for n in value):
            raise wrong(f"{key} must be a list of numbers from 0 to {_MAX_NUMBER}", key)
        return tuple(value)

    known: dict[str, Any] = {}
    extra: dict[str, str] = {}
    for key, value in values.items():
        match key:
            case "num_draft_tokens":
                if value is not None and (type(value) is not int or not 0 <= value <= _MAX_NUMBER):
                    raise wrong(f"{key} must be a number from 0 to {_MAX_NUMBER}", key)
                known[key] = value
            case "compression_ratios" | "kv_layer_ids" | "kv_item_lens":
                known[key] = numbers(key, value)
            case "state_types":
                if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                    raise wrong(f"{key} must be a list of texts", key)
                known[key] = tuple(value)
            case "state_item_lens":
                if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
                    raise wrong(f"{key} must be a list of lists of numbers", key)
                known[key] = tuple(numbers(key, row) for row in value)
            case _:
                try:
                    extra[key] = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
                except ValueError as error:
                    raise wrong(f"{key}: {error}", key) from None
    return SpecLayout(**known, extra_json=tuple(sorted(extra.items())))


def spec_layout_document(layout: "SpecLayout") -> dict[str, object]:
    """A layout in the same form, for `--json`."""
    return {
        **({} if layout.num_draft_tokens is None else {"num_draft_tokens": layout.num_draft_tokens}),
        "compression_ratios": list(layout.compression_ratios),
        "kv_layer_ids": list(layout.kv_layer_ids),
        "kv_item_lens": list(layout.kv_item_lens),
        "state_types": list(layout.state_types),
        "state_item_lens": [list(row) for row in layout.state_item_lens],
        **{key: json.loads(text) for key, text in layout.extra_json},
    }
