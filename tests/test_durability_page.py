"""docs/durability.md and docs/running.md speak of tests, commands and settings that there are."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from interlock.serving.config import declared_settings
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DURABILITY, RUNNING = DOCS / "durability.md", DOCS / "running.md"


@cache
def names_of_tests(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def promises() -> list[str]:
    """Each promise with its tests: a paragraph that begins with what is promised, in bold."""
    promised, _, _ = DURABILITY.read_text().partition("## What is not promised")
    return [part for part in promised.split("\n\n") if part.startswith("**")]


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DURABILITY.read_text())
    assert len(named) > 40
    assert [test for test in named if test[1] not in names_of_tests(test[0])] == []


@pytest.mark.parametrize("promise", promises(), ids=lambda text: text.partition("**")[2].partition("**")[0])
def test_every_promise_names_tests_that_show_it(promise):
    assert re.search(r"^- `tests/[\w/]+\.py::test_\w+`$", promise, re.MULTILINE)


def test_the_bounds_that_are_told_are_the_defaults():
    defaults = {
        setting.flag: setting.default
        for kind in (BootstrapSettings, EtcdSettings)
        for setting in declared_settings(kind)
    }
    text = DURABILITY.read_text()
    assert defaults["--etcd-staleness-bound-seconds"] == 5.0
    assert "5 s (`--etcd-staleness-bound-seconds`)" in text
    assert "`--etcd-staleness-bound-seconds` (5)" in text
    assert defaults["--room-ttl-seconds"] == 300.0
    assert "`--room-ttl-seconds` (300 at least)" in text


@pytest.mark.parametrize("page", [DURABILITY, RUNNING, DOCS / "errors.md"], ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (DOCS / link).exists(), link


def commands() -> list[list[str]]:
    """Every command line of the page on running it."""
    text = RUNNING.read_text().replace("\\\n", " ")
    lines = re.findall(r"(?:^    \$? ?|ExecStart=\S*/)(interlock .*)$", text, re.MULTILINE)
    listed = [match.replace(",", " ") for match in re.findall(r"args: \[(interlock.*)\]$", text, re.MULTILINE)]
    inline = [line for line in re.findall(r"`(interlock [^`]+)`", text) if not line.endswith("--help")]
    return [shlex.split(line)[1:] for line in [*lines, *listed, *inline]]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_parses(words):
    command: click.Command = main
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words)


def test_every_setting_that_is_named_is_one():
    serve = main.commands["serve"]
    assert isinstance(serve, click.Group)
    bootstrap = serve.commands["bootstrap"]
    flags = {flag for option in bootstrap.get_params(click.Context(bootstrap)) for flag in option.opts}
    etcds_own = {"--auto-compaction-mode", "--auto-compaction-retention"}
    for page in (DURABILITY, RUNNING):
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))
        assert named - flags - etcds_own == set(), page.name


def test_the_settings_file_is_one(tmp_path):
    from interlock.serving.config import load_settings_file
    from interlock_cli.settings import all_settings

    (text,) = re.findall(r"```toml\n(.*?)```", RUNNING.read_text(), re.DOTALL)
    (tmp_path / "interlock.toml").write_text(text)
    file = load_settings_file(tmp_path / "interlock.toml", all_settings())
    assert EtcdSettings(**file["etcd"]).tls
