"""Registrations of either face, driven from a test that runs on the event loop of their server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from client.scripted import PATIENCE, QUICK, Face
from interlock.client import AsyncRegistration, InterlockError, Registration, RegistrationState

Kept = Registration | AsyncRegistration


@asynccontextmanager
async def client_of(face: Face, address: str, **options: Any) -> AsyncIterator[Any]:
    """A client, closed afterwards."""
    client = face.bootstrap(address, retry=QUICK, **options)
    try:
        yield client
    finally:
        await done(client.close)


@asynccontextmanager
async def registered(client: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Kept]:
    """The block of `client.registration(...)`."""
    registration = client.registration(*args, **kwargs)
    await entered(registration)
    leave = registration.__exit__ if isinstance(registration, Registration) else registration.__aexit__
    try:
        yield registration
    except BaseException as error:
        await done(leave, type(error), error, error.__traceback__)
        raise
    await done(leave, None, None, None)


async def entered(registration: Kept) -> None:
    """Begins the block of a registration."""
    await done(registration.__enter__ if isinstance(registration, Registration) else registration.__aenter__)


async def lost(registration: Kept) -> InterlockError | None:
    """What `wait_lost` gives."""
    return await done(registration.wait_lost, PATIENCE)


async def until(condition: Callable[[], bool]) -> None:
    """Waits until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def until_state(registration: Kept, state: RegistrationState) -> None:
    await until(lambda: registration.state is state)


async def done(method: Callable[..., Any], *args: Any) -> Any:
    """Calls a method of either face, a blocking one beside the event loop."""
    if asyncio.iscoroutinefunction(method):
        return await method(*args)
    return await asyncio.to_thread(method, *args)
