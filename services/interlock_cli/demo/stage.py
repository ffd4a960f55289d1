"""Both services, each on a free port of this machine, in a thread beside the story."""

import asyncio
import queue
import threading
from types import TracebackType
from typing import Self

from interlock.serving import Server, ServerSettings
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess.serve import add_preprocess

_PATIENCE_SECONDS = 20


class Stage:
    """The services while the block runs. They are reached over real gRPC, like any others.

    Raises:
        Exception: What kept a service from starting.
    """

    def __init__(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="services", daemon=True)
        self._started: queue.SimpleQueue[tuple[int, int] | Exception] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.ports: tuple[int, int] = (0, 0)
        """Of Bootstrap and of Preprocess."""

    def __enter__(self) -> Self:
        self._thread.start()
        started = self._started.get(timeout=_PATIENCE_SECONDS)
        if isinstance(started, Exception):
            raise started
        self.ports = started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether anything of the services still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stops both services and waits for their end. Stopping twice changes nothing."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_PATIENCE_SECONDS)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        bootstrap, preprocess = (Server(ServerSettings(port=0)) for _ in range(2))
        try:
            add_bootstrap(bootstrap, BootstrapSettings())
            pictures = add_preprocess(preprocess)
            self._started.put((await bootstrap.start(), await preprocess.start()))
        except Exception as error:
            self._started.put(error)
            return
        await self._stopping.wait()
        await asyncio.gather(bootstrap.stop(grace=1), preprocess.stop(grace=1))
        await pictures.close()
