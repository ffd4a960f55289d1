"""A rank that is kept registered while a `with` block runs; made by `BootstrapClient.registration`.

Entering registers the rank and raises what `register_route` raises. From then on its lease is renewed, and the rank
registers again if the server was away or lost what it knew; nothing of that is raised. Only if the server refuses it
for good (a newer launch or process took over, or it no longer fits its group) is the registration lost:

- `wait_lost()` gives the error as soon as that happens; `check()` raises it.
- Leaving the block raises it, unless the block itself raised something.

The block itself is not interrupted: a rank may have requests under way that it wants to end first. Leaving the block
deregisters the rank, within a few seconds and without an error if that fails: its lease ends it then.
"""

import asyncio
import math
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from interlock.client._internal.leases import HeldLease
from interlock.client.errors import InterlockError
from interlock.client.groups import Registered, RegistrationState
from interlock.client.launch import given_instance
from interlock.topology import Instance, RankKey, Route

if TYPE_CHECKING:
    from interlock.client._internal.lease_keepers import AsyncLeaseKeeper, LeaseKeeper
    from interlock.client.bootstrap import AsyncBootstrapClient, BootstrapClient

DEFAULT_LEASE_TTL = 30.0
"""Seconds: long enough for a server to be restarted, short enough that nobody is sent to a dead rank for long."""

_FAREWELL_SECONDS = 2.0
"""How long leaving may take to deregister."""

_SIGNAL_SECONDS = 0.2
"""How long `wait_lost` waits at a stretch: Python does not notice a signal that comes just before a thread begins to
wait, until it waits no more."""


class _Registration:
    """What both faces show of a registration."""

    def __init__(
        self, route: Route, instance: Instance | None, group: str, lease_ttl: float, timeout: float | None
    ) -> None:
        self.route = route
        """What is registered."""
        self.group = group
        self.instance = instance
        """The launch. None: not known before the block is entered."""
        self._lease_ttl = lease_ttl
        self._timeout = timeout
        self._held: HeldLease | None = None

    @property
    def key(self) -> RankKey:
        """Which rank of the group this is."""
        return self.route.key

    @property
    def state(self) -> RegistrationState:
        """How it stands."""
        return RegistrationState.NEW if self._held is None else self._held.state

    @property
    def registered(self) -> Registered | None:
        """What the server answered when the rank registered last. None: it did not yet."""
        return None if self._held is None else self._held.registered

    @property
    def revision(self) -> int:
        """Revision at which it registered last; 0 before it did."""
        return 0 if self.registered is None else self.registered.revision

    @property
    def error(self) -> InterlockError | None:
        """Why it is LOST; while RECOVERING, what went wrong last, if anything did."""
        return None if self._held is None else self._held.error

    def check(self) -> None:
        """Does nothing while the registration may stand.

        Raises:
            InterlockError: why it is lost: `StaleInstanceError`, `StaleIncarnationError`, `ContractMismatchError`, or
                another refusal that trying again does not mend.
        """
        lost = self._lost
        if lost is not None:
            raise lost

    @property
    def _lost(self) -> InterlockError | None:
        return self.error if self.state is RegistrationState.LOST else None

    def _check_new(self) -> None:
        if self._held is not None:
            raise RuntimeError("a registration can be entered only once")


class Registration(_Registration):
    """A rank that is kept registered while a `with` block runs.

    All of one client are renewed by one thread, which ends when the client is closed. Make the client in the process
    that uses it: after a fork nothing of it works in the child, where leaving the block does nothing.
    """

    def __init__(
        self,
        client: "BootstrapClient",
        keeper: "LeaseKeeper",
        route: Route,
        instance: Instance | None,
        group: str,
        lease_ttl: float,
        timeout: float | None,
    ) -> None:
        super().__init__(route, instance, group, lease_ttl, timeout)
        self._client = client
        self._keeper = keeper
        # Held until the end, by nobody in particular. A `threading.Event` would not do: a Ctrl-C inside its Python code
        # could leave its lock taken, and the keeper's thread could never set it.
        self._until_end = threading.Lock()
        self._until_end.acquire()

    def __enter__(self) -> Self:
        self._check_new()
        self.instance = self.instance or given_instance(self.route.sizes, self.group)
        if self.instance is None:
            self.instance = self._client.mint_instance(self.group, timeout=self._timeout)
        self._held = held = HeldLease(self.route, self.instance, self.group, self._lease_ttl, on_end=self._tell_end)
        try:
            registered = self._client.register_route(
                self.route, self.instance, group=self.group, lease_ttl=self._lease_ttl, timeout=self._timeout
            )
            self._keeper.hold(held, registered)
        except InterlockError:
            raise
        except BaseException:
            # Ctrl-C or a cancellation: the rank may be registered, and nobody leaves a block that was not entered.
            self._leave(held)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._leave(self._held)
        if error is None:
            self.check()

    def _leave(self, held: HeldLease) -> None:
        if not self._keeper.usable or self.instance is None:
            return
        self._keeper.release(held)
        if self._lost is None:
            with suppress(InterlockError):
                self._client.deregister_route(
                    self.key, self.instance, self.route.incarnation, group=self.group, timeout=_FAREWELL_SECONDS
                )

    def wait_lost(self, timeout: float | None = None) -> InterlockError | None:
        """Waits until the registration is lost.

        Args:
            timeout: seconds. None: no bound.

        Returns:
            Why it is lost. None: it is not, and the time is over or the block was left.
        """
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while not self._until_end.acquire(timeout=max(0.0, min(_SIGNAL_SECONDS, ends_at - time.monotonic()))):
                if time.monotonic() >= ends_at:
                    break
        finally:
            if self.state in (RegistrationState.LOST, RegistrationState.ENDED):
                self._tell_end()  # whoever waits beside us
        return self._lost

    def _tell_end(self) -> None:
        with suppress(RuntimeError):  # it is open already
            self._until_end.release()


class AsyncRegistration(_Registration):
    """A rank that is kept registered while an `async with` block runs.

    All of one client are renewed by one task, which ends when the client is closed.
    """

    def __init__(
        self,
        client: "AsyncBootstrapClient",
        keeper: "AsyncLeaseKeeper",
        route: Route,
        instance: Instance | None,
        group: str,
        lease_ttl: float,
        timeout: float | None,
    ) -> None:
        super().__init__(route, instance, group, lease_ttl, timeout)
        self._client = client
        self._keeper = keeper
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._check_new()
        self.instance = self.instance or given_instance(self.route.sizes, self.group)
        if self.instance is None:
            self.instance = await self._client.mint_instance(self.group, timeout=self._timeout)
        self._held = held = HeldLease(self.route, self.instance, self.group, self._lease_ttl, on_end=self._ended.set)
        try:
            registered = await self._client.register_route(
                self.route, self.instance, group=self.group, lease_ttl=self._lease_ttl, timeout=self._timeout
            )
            self._keeper.hold(held, registered)
        except InterlockError:
            raise
        except BaseException:
            # Ctrl-C or a cancellation: the rank may be registered, and nobody leaves a block that was not entered.
            await self._leave(held)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            await self._leave(self._held)
        if error is None:
            self.check()

    async def _leave(self, held: HeldLease) -> None:
        if not self._keeper.usable or self.instance is None:
            return
        self._keeper.release(held)
        if self._lost is None:
            with suppress(InterlockError):
                await self._client.deregister_route(
                    self.key, self.instance, self.route.incarnation, group=self.group, timeout=_FAREWELL_SECONDS
                )

    async def wait_lost(self, timeout: float | None = None) -> InterlockError | None:
        """Waits until the registration is lost.

        Args:
            timeout: seconds. None: no bound.

        Returns:
            Why it is lost. None: it is not, and the time is over or the block was left.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), timeout)
        return self._lost
