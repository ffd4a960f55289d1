"""docs/errors.md is the one table of reasons, and says what the code says."""

import re
from pathlib import Path

from google.rpc import code_pb2

from interlock.reasons import Reason

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"


def rows() -> list[list[str]]:
    lines = PAGE.read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def test_the_table_has_the_reasons_of_the_code_in_their_order():
    assert [row[0] for row in rows()] == [f"`{reason}`" for reason in Reason]


def test_the_table_has_the_status_of_each_reason():
    assert [row[1] for row in rows()] == [f"`{code_pb2.Code.Name(reason.code)}`" for reason in Reason]


def test_every_row_says_when_and_what_to_do():
    for row in rows():
        assert len(row) == 4, row
        assert row[2].endswith("."), row
        assert row[3].endswith("."), row


def test_every_command_that_the_page_names_exists():
    from interlock_cli import main

    for command in re.findall(r"`interlock ([a-z ]+)`", PAGE.read_text()):
        group = main
        for word in command.split():
            group = group.commands[word]
