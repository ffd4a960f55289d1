"""A server in a process of its own, whose log is read and whose end is watched."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.test_crowd import HERE

SIGNS_OF_A_FAULT = ("Traceback", "never retrieved", "never awaited", "failed in a way", "Fatal Python error")


@dataclass(frozen=True)
class Target:
    """The server under fire."""

    process_id: int
    channel: grpc.aio.Channel
    stubs: tuple[PreprocessServiceStub, ...]


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    """The server; asserts that it is alive at the end, ends well when told to, and has no fault in its log."""
    log = tmp_path / "server.log"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "server_process.py"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
    try:
        address = f"127.0.0.1:{int(await process.stdout.readline())}"
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 4 << 20)]
        channels = [grpc.aio.insecure_channel(address, options) for _ in range(4)]
        yield Target(process.pid, channels[0], tuple(PreprocessServiceStub(channel) for channel in channels))
        for channel in channels:
            await channel.close()
        assert process.returncode is None, f"the server ended with {process.returncode}"
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)
    assert process.returncode == 0
    said = log.read_text(errors="replace")
    assert not [sign for sign in SIGNS_OF_A_FAULT if sign in said], said[-5_000:]
