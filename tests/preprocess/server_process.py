"""A Preprocess server without a cache, as its own process. Prints its port; ends when its standard input is closed.

Its first argument may be further settings, as JSON.
"""

import asyncio
import json
import sys

from interlock.serving import Server, ServerSettings
from interlock.serving.config import resolve
from interlock_preprocess import PreprocessSettings, add_preprocess


async def main(settings: str = "{}") -> None:
    server = Server(ServerSettings(host="127.0.0.1", port=0))
    flags = {"cache_bytes": 0, "memory_idle_seconds": 1.0} | json.loads(settings)
    service = add_preprocess(server, resolve(PreprocessSettings, flags=flags, environment={}, file={}))
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)
    await service.close()


asyncio.run(main(*sys.argv[1:]))
