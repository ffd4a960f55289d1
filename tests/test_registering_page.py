"""The rank and the launcher of docs/registering.md run as they stand there."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interlock.client import AsyncBootstrapClient, BootstrapClient, WatchChange, WatchSnapshot
from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "registering.md").read_text()
PATIENCE = 60

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
async def address() -> Iterator[str]:
    server = Server(ServerSettings(port=0))
    add_bootstrap(server, BootstrapSettings())
    yield f"127.0.0.1:{await server.start()}"
    await server.stop(0)


@pytest.fixture
def start(address: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a program of the page, in a process group of its own."""
    rank, launcher = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for name, text in (("rank.py", rank), ("launcher.py", launcher)):
        assert text.count('"127.0.0.1:50051"') == 1
        (tmp_path / name).write_text(text.replace("127.0.0.1:50051", address))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    variables["PYTHONPATH"] = str(ROOT / "libs")
    started: list[subprocess.Popen[str]] = []

    def start_program(*words: str, **more: str) -> "subprocess.Popen[str]":
        started.append(
            subprocess.Popen(
                [sys.executable, *words],
                cwd=tmp_path,
                env={**variables, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield start_program
    for process in started:
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def group_when(address: str, registered: int) -> "WatchSnapshot | WatchChange":
    """The group as soon as it has so many ranks."""
    with BootstrapClient(address) as client:
        for item in client.watch_topology("prefill-a", timeout=PATIENCE):
            if isinstance(item, WatchSnapshot | WatchChange) and item.state.registered == registered:
                return item
    raise AssertionError


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_rank_alone_registers_and_leaves_when_it_is_stopped(
    start: Start, address: str, number: signal.Signals
) -> None:
    rank = start("rank.py", "0", "1")
    first = await asyncio.to_thread(group_when, address, 1)
    assert (first.state.ready, [route.rank_port for route in first.routes.values()]) == (True, [9000])
    assert await asyncio.to_thread(rank.stdout.readline) == f"rank 0 registered at revision {first.state.revision}\n"
    rank.send_signal(number)
    assert await asyncio.to_thread(rank.wait, PATIENCE) == (0 if number is signal.SIGTERM else -signal.SIGINT)
    # It went at once, by itself: its lease would have had half a minute left.
    assert (await asyncio.to_thread(group_when, address, 0)).state.revision == first.state.revision + 1


async def test_a_launcher_starts_four_ranks_of_one_launch(start: Start, address: str) -> None:
    launcher = start("launcher.py")
    group = await asyncio.to_thread(group_when, address, 4)
    assert (group.state.ready, group.state.epoch) == (True, 1)
    os.killpg(launcher.pid, signal.SIGTERM)
    assert await asyncio.to_thread(launcher.wait, PATIENCE) == -signal.SIGTERM
    assert (await asyncio.to_thread(group_when, address, 0)).state.epoch == 1


async def test_a_second_launch_takes_over_and_the_first_ones_ranks_end_and_say_why(
    start: Start, address: str, tmp_path: Path
) -> None:
    rank = (tmp_path / "rank.py").read_text()
    # They learn it when they renew: here soon.
    (tmp_path / "rank.py").write_text(rank.replace('group="prefill-a"', 'group="prefill-a", lease_ttl=1'))
    first = start("launcher.py")
    before = await asyncio.to_thread(group_when, address, 4)
    with BootstrapClient(address) as client:
        later = await asyncio.to_thread(client.mint_instance, "prefill-a")
    assert later > before.state.instance
    for tp, route in enumerate(before.routes.values()):
        async with AsyncBootstrapClient(address) as other:
            await other.register_route(replace(route, rank_port=9100 + tp), later, group="prefill-a")
    _, told = await asyncio.to_thread(first.communicate, timeout=PATIENCE)
    assert first.returncode == 1
    assert told.count("interlock.client.errors.StaleInstanceError: STALE_INSTANCE") == 4


async def test_a_rank_of_many_that_was_handed_no_instance_says_what_to_do(start: Start, address: str) -> None:
    _, told = await asyncio.to_thread(start("rank.py", "0", "4").communicate, timeout=PATIENCE)
    assert "interlock.client.errors.InstanceError: a rank of group 'prefill-a', one of 4, has no instance" in told
    assert "`interlock instance mint prefill-a`" in told
