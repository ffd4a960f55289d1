"""A Preprocess server without a cache, as its own process. Prints its port; ends when its standard input is closed."""

import asyncio
import sys

from interlock.serving import Server, ServerSettings
from interlock_preprocess import PreprocessSettings, add_preprocess


async def main() -> None:
    server = Server(ServerSettings(host="127.0.0.1", port=0))
    service = add_preprocess(server, PreprocessSettings(cache_bytes=0))
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)
    await service.close()


asyncio.run(main())
