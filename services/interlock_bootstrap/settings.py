"""What can be set of the Bootstrap service."""

from dataclasses import dataclass

from interlock.serving.config import Settings, setting


@dataclass(frozen=True)
class BootstrapSettings(Settings):
    """The store and the bounds of the Bootstrap service."""

    table = "bootstrap"

    store: str = setting(
        "sqlite",
        "Where groups and rooms are kept. sqlite: in a file of this server alone. etcd: there, for any number of "
        "servers. memory: nowhere; for trials.",
        choices=("sqlite", "etcd", "memory"),
    )
    max_groups: int = setting(10_000, "Groups kept; a further one is refused (TOO_MANY_GROUPS).", minimum=1)
    max_watchers: int = setting(10_000, "Watches open at once; further ones are refused (OVERLOADED).", minimum=1)
    watch_buffer: int = setting(
        256, "Changes that a watcher may fall behind before it gets a fresh snapshot instead.", minimum=1
    )
    progress_seconds: float = setting(10.0, "Seconds from one progress message of a watch to the next.", minimum=0.05)
    max_rooms: int = setting(
        1_000_000, "Rooms kept over all groups; a further one is refused (TOO_MANY_ROOMS).", minimum=1
    )
    max_awaited_rooms: int = setting(
        1_000_000, "Rooms that WaitDpRanks calls wait for at once; more are refused (OVERLOADED).", minimum=1
    )
    room_ttl_seconds: float = setting(300.0, "Seconds that a room is kept after it was last registered.", minimum=300)
