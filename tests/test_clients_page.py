"""docs/clients.md shows lines of the programs that CI compiles and runs, and no others."""

import re

from scripts.check_ten_lines import PAGE, TEN_LINES, page, shown_lines

TEXT = PAGE.read_text()


def test_the_page_shows_the_lines_of_the_programs():
    assert page() == TEXT, "run `python -m scripts.check_ten_lines --write`"


def test_every_block_of_code_is_one_of_them():
    blocks = re.findall(r"```\w+\n(.*?)```", TEXT, re.DOTALL)
    assert blocks == [shown_lines(language) for language in TEN_LINES]
    assert all(9 <= len(block.splitlines()) <= 24 for block in blocks)


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT)
    assert len(links) > 12
    for link in links:
        assert (PAGE.parent / link).exists(), link
