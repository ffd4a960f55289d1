"""One launch of a group: minted once by the launcher, handed to every rank through the environment.

    # The launcher
    with BootstrapClient(address) as client:
        instance = client.mint_instance("prefill-a")
    for rank in range(8):
        subprocess.Popen(command(rank), env={**os.environ, **instance_environment(instance)})

    # Each rank
    with BootstrapClient(address) as client, client.registration(route, group="prefill-a"):
        serve()

Ranks that each minted an instance of their own would shut each other out: every one starts a new epoch.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping

from interlock.client.errors import InstanceError
from interlock.topology import Instance, ParallelSizes
from interlock.topology.validation import instance_faults

INSTANCE_VARIABLE = "INTERLOCK_INSTANCE"
"""The environment variable that hands an instance to the ranks of its launch."""


def instance_to_text(instance: Instance) -> str:
    """An instance as one line of JSON. The time is a whole number of more than 53 bits: hand the text on as it is."""
    return json.dumps({"id": instance.id, "started_at": instance.started_at})


def instance_from_text(text: str) -> Instance:
    """The instance that a text of `instance_to_text` names.

    Raises:
        InstanceError: the text names none; says why.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InstanceError(f"an instance is expected as JSON: {error}; got {_cut(text)}") from None
    match value:
        case {"id": str(name), "started_at": int(started_at), **rest} if not rest and started_at is not True:
            instance = Instance(name, started_at)
        case _:
            raise InstanceError(
                'an instance is expected as {"id": "...", "started_at": Unix nanoseconds as a whole number}; '
                f"got {_cut(text)}"
            )
    if faults := list(instance_faults(instance, "instance")):
        raise InstanceError("; ".join(f"{field} {fault}" for field, fault in faults))
    return instance


def instance_environment(instance: Instance) -> dict[str, str]:
    """What a launcher adds to the environment of its ranks."""
    return {INSTANCE_VARIABLE: instance_to_text(instance)}


def instance_from_environment(environment: Mapping[str, str] = os.environ) -> Instance | None:
    """The instance that the launcher handed over. None: it handed over none.

    Raises:
        InstanceError: the variable is set, and names none.
    """
    text = environment.get(INSTANCE_VARIABLE)
    if not text:
        return None
    try:
        return instance_from_text(text)
    except InstanceError as error:
        raise InstanceError(f"{INSTANCE_VARIABLE}: {error}") from None


def new_instance(floor: Instance | None) -> Instance:
    """An instance that a group with this floor accepts, also where this machine's clock is behind."""
    return Instance(str(uuid.uuid4()), max(time.time_ns(), 0 if floor is None else floor.started_at + 1))


def given_instance(sizes: ParallelSizes, group: str) -> Instance | None:
    """The instance that a rank registers with if it names none: that of its environment. None: it may mint one, since
    it is alone.

    Raises:
        InstanceError: the rank is one of many, and none was handed to it.
    """
    instance = instance_from_environment()
    if instance is None and sizes.product != 1:
        raise InstanceError(
            f"a rank of group {group!r}, one of {sizes.product}, has no instance: its launcher must mint one for all "
            f"of them (`client.mint_instance({group!r})` or `interlock instance mint {group}`) and hand it to each, in "
            f"the environment variable {INSTANCE_VARIABLE} or as `instance=`"
        )
    return instance


_incarnations: dict[int, int] = {}


def process_incarnation() -> int:
    """The incarnation of the ranks of this process: the time, in Unix nanoseconds, at which it first asked.

    The same for the whole life of the process, another one in a fork of it, and a later one after a restart, unless
    the machine's clock was set back meanwhile.
    """
    return _incarnations.setdefault(os.getpid(), time.time_ns())


def _cut(text: str) -> str:
    return ascii(text) if len(text) <= 80 else f"{text[:80]!a}..."


os.register_at_fork(after_in_child=_incarnations.clear)  # a process number of the past may come again in a descendant
