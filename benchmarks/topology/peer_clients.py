"""The peer's clients, as `sglang` 0.5.23 has them: which calls they make, and on which connections.

A rank's PUT, the sentinel and a room's POST each have a connection of their own; a decode server's row GETs and room
queries share one that is kept alive.
"""

import asyncio
import json
from collections.abc import Iterable

from benchmarks.topology.plain_http import Connection, call_once, expect_ok_once, request
from benchmarks.topology.ranks import Addresses, Launch
from interlock.topology import ParallelSizes, RankKey

POLL_SECONDS = 1.0
"""Between two looks of a decode server whether all ranks have registered."""

_SENTINEL = RankKey(-1, -1, -1, -1)


async def register(port: int, launch: Launch, clients: int) -> None:
    """Registers every rank, so many at a time."""
    waiting = iter([request("PUT", "/route", body) for body in launch.put_bodies()])

    async def client() -> None:
        for put in waiting:
            await expect_ok_once(port, put)

    await asyncio.gather(*(client() for _ in range(clients)))


async def poll_until_complete(port: int, sizes: ParallelSizes, first_look: float) -> Addresses:
    """Asks from `first_look` seconds on until every rank has registered, then gets each row."""
    await asyncio.sleep(first_look)
    while (await call_once(port, _get_route(_SENTINEL)))[0] != 200:
        await asyncio.sleep(POLL_SECONDS)
    addresses: Addresses = {}
    async with await Connection.open(port) as connection:
        for key in sizes.rank_keys():
            row = json.loads(await connection.expect_ok(_get_route(key)))
            addresses[key] = row["rank_ip"], row["rank_port"]
    return addresses


async def register_and_poll(port: int, launch: Launch, ranks: int, decoders: int) -> list[Addresses]:
    """Ranks register while decode servers ask for them; gives what each of these ended with.

    Decode servers do not start in the same moment: their looks are spread evenly over the time between two.
    """
    async with asyncio.TaskGroup() as group_of_tasks:
        polls = [
            group_of_tasks.create_task(poll_until_complete(port, launch.sizes, POLL_SECONDS * number / decoders))
            for number in range(decoders)
        ]
        await register(port, launch, ranks)
    return [poll.result() for poll in polls]


async def rooms(port: int, dp_ranks: dict[int, int], clients: int, batch: int) -> dict[int, int]:
    """Registers rooms one a call, so many at a time, then queries them in batches over one connection."""
    waiting = iter(dp_ranks.items())

    async def client() -> None:
        for room, dp_rank in waiting:
            body = json.dumps({"bootstrap_room": room, "dp_rank": dp_rank}).encode()
            await expect_ok_once(port, request("POST", "/register_dp_rank", body))

    await asyncio.gather(*(client() for _ in range(clients)))
    found: dict[int, int] = {}
    async with await Connection.open(port) as connection:
        for some in batches(list(dp_ranks), batch):
            body = json.dumps({"bootstrap_rooms": some}).encode()
            answer = json.loads(await connection.expect_ok(request("POST", "/query_dp_ranks", body)))
            found |= {int(room): dp_rank for room, dp_rank in answer.items()}
    return found


def batches(rooms: list[int], size: int) -> Iterable[list[int]]:
    """The rooms in parts of at most `size`."""
    return (rooms[start : start + size] for start in range(0, len(rooms), size))


def _get_route(key: RankKey) -> bytes:
    query = f"prefill_dp_rank={key.dp}&prefill_cp_rank={key.cp}&target_tp_rank={key.tp}&target_pp_rank={key.pp}"
    return request("GET", f"/route?{query}")
