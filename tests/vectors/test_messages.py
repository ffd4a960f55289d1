"""Python agrees with `messages.json`, and the file leaves nothing of the contract out."""

import json

import pytest
from google.protobuf.json_format import MessageToDict, Parse

from vectors.reading import CONTRACT, fields_set, message_type, message_types, read

ENTRIES = read("messages.json")


def of(about: str) -> dict:
    (entry,) = (entry for entry in ENTRIES if entry["about"].startswith(about))
    return entry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['type']}: {entry['about']}")
def test_a_message_has_its_bytes_and_its_json(entry):
    kind = message_type(entry["type"])
    message = kind.FromString(bytes.fromhex(entry["hex"]))
    assert MessageToDict(message) == entry["json"]
    assert message.SerializeToString(deterministic=True).hex() == entry["hex"]

    known = Parse(json.dumps(entry["json"]), kind())
    known_hex = entry.get("hex_without_unknown_fields", entry["hex"])
    assert known.SerializeToString(deterministic=True).hex() == known_hex
    for other in entry.get("also_hex", []):
        assert kind.FromString(bytes.fromhex(other)) == known
    for other in entry.get("also_json", []):
        assert Parse(other, kind()) == known


def test_every_message_has_an_entry():
    assert {descriptor.full_name for descriptor in message_types()} == {entry["type"] for entry in ENTRIES}


def test_every_field_is_set_in_an_entry():
    present = set()
    for entry in ENTRIES:
        present |= set(fields_set(message_type(entry["type"]).FromString(bytes.fromhex(entry["hex"]))))
    assert {field.full_name for descriptor in message_types() for field in descriptor.fields} - present == set()


def test_every_number_of_every_enum_that_a_field_has_is_in_an_entry():
    text = json.dumps([entry["json"] for entry in ENTRIES])
    enums = {
        field.enum_type
        for descriptor in message_types()
        for field in descriptor.fields
        if field.enum_type is not None and field.enum_type.file in CONTRACT
    }
    assert len(enums) == 6
    for enum in enums:
        for value in enum.values:
            assert (f'"{value.name}"' in text) == (value.number != 0), value.name


def test_absent_and_zero_are_two_messages():
    absent, zero = of("absent: "), of("present and zero: ")
    assert absent["type"] == zero["type"] == "interlock.bootstrap.v1.Route"
    added = zero["json"].keys() - absent["json"].keys()
    descriptor = message_type(absent["type"]).DESCRIPTOR
    assert added == {field.json_name for field in descriptor.fields if field.has_presence} - {"key", "sizes"}


def test_fields_that_a_newer_peer_knows_are_kept():
    assert len([entry for entry in ENTRIES if "hex_without_unknown_fields" in entry]) == 3
    entry = of("fields that a newer peer knows")
    wire_types = {byte & 7 for byte in bytes.fromhex("a006a906b206bd06")[::2]}
    assert wire_types == {0, 1, 2, 5}
    assert entry["hex"].startswith(entry["hex_without_unknown_fields"] + "a006")


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64 - 1])
def test_numbers_that_break_javascript_and_java_are_there(number):
    assert any(f'"{number}"' in json.dumps(entry["json"]) for entry in ENTRIES if "Room" in entry["type"])
