"""Memory is kept while there is work, and given back after it."""

import asyncio
import json
import subprocess
import sys

import grpc

from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from preprocess.callers import answers_to, flat_file, picture_file, reference_patches, whole
from preprocess.test_crowd import MARGIN, MIB, resident_bytes, server_process, settled_bytes  # noqa: F401 - a fixture

KEEP = """
import json, re
import numpy as np
from interlock_preprocess import memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

memory.keep_freed_memory()
seen = [resident()]
pixels = np.ones(48 << 20, np.uint8)
seen.append(resident())
del pixels
seen.append(resident())
memory.return_freed_memory()
seen.append(resident())
print(json.dumps(seen))
"""


def test_the_buffer_of_a_large_picture_is_kept_until_it_is_asked_for():
    done = subprocess.run([sys.executable, "-c", KEEP], capture_output=True, text=True, check=True)
    before, in_use, freed, returned = json.loads(done.stdout)
    assert in_use >= before + 47 * MIB  # the kernel counts in batches of pages
    assert freed >= in_use - MIB
    assert returned <= before + MIB


async def test_after_a_burst_the_server_has_what_it_had_before(server_process):  # noqa: F811
    process_id, port = server_process
    photograph, graphic = picture_file(1, 4000, 3000, "JPEG"), flat_file(4000, 3000)
    expected = {"JPEG": reference_patches(photograph), "PNG": reference_patches(graphic)}
    most = 0

    async def one_caller(count: int) -> None:
        nonlocal most
        steps = [
            step
            for number in range(count)
            for name, file in (("JPEG", photograph), ("PNG", graphic))
            for step in whole(f"{name} {number}", file)
        ]
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            answers = await answers_to(PreprocessServiceStub(channel), steps)
        most = max(most, resident_bytes(process_id))
        assert len(answers) == 2 * count
        for image_id, answer in answers.items():
            assert answer.patches == expected[image_id.split()[0]]

    await asyncio.gather(*(one_caller(1) for _ in range(4)))  # warms up: imports, tables, stacks of threads
    before = await settled_bytes(process_id)
    await asyncio.gather(*(one_caller(3) for _ in range(4)))
    assert most >= before + 35 * MIB  # the pixels of one at least
    assert await settled_bytes(process_id) <= before + MARGIN
