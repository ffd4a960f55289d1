"""Names of the keys in etcd.

    PREFIX/last-commit                            empty; every commit of anything puts it
    PREFIX/groups/GROUP/header                    the group: `records.Header`
    PREFIX/groups/GROUP/epochs/EPOCH/ranks/KEY    one rank: `records.Rank`
    PREFIX/groups/GROUP/epochs/EPOCH/leases/KEY   there while the lease of its route runs; hangs on an etcd lease
    PREFIX/groups/GROUP/epochs/EPOCH/layouts/NAME a DSpark layout, named by its digest
    PREFIX/groups/GROUP/epochs/EPOCH/rooms/NAME   some rooms: `records.Rooms`; hangs on an etcd lease

A group's name is a DNS label, so it holds no slash, and no group's keys begin as those of another. EPOCH has sixteen
hexadecimal digits, so that all earlier epochs are one range.
"""

from dataclasses import dataclass

from interlock.topology import RankKey

HEADER = "header"
RANKS = "ranks"
LEASES = "leases"
LAYOUTS = "layouts"
ROOMS = "rooms"


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A key of the store, taken apart."""

    group: str
    kind: str
    """HEADER or one of the others."""
    epoch: int = 0
    name: str = ""
    """What comes after the kind."""


class Keys:
    """The keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        root = f"/{prefix.strip('/')}/"
        self._groups = f"{root}groups/"
        self.everything = _all_under(root)
        """The range of all keys of the store."""
        self.last_commit = f"{root}last-commit".encode()
        """Its `mod_revision` is that of the last commit: who saw as much of etcd has seen every commit."""

    def header(self, group: str) -> bytes:
        return f"{self._groups}{group}/{HEADER}".encode()

    def rank(self, group: str, epoch: int, key: RankKey) -> bytes:
        return self._in_epoch(group, epoch, RANKS, _rank_name(key))

    def lease(self, group: str, epoch: int, key: RankKey) -> bytes:
        return self._in_epoch(group, epoch, LEASES, _rank_name(key))

    def leases(self, group: str, epoch: int) -> tuple[bytes, bytes]:
        """The range of all leases of an epoch."""
        return _all_under(self._in_epoch(group, epoch, LEASES, "").decode())

    def layout(self, group: str, epoch: int, name: str) -> bytes:
        return self._in_epoch(group, epoch, LAYOUTS, name)

    def rooms(self, group: str, epoch: int, name: str) -> bytes:
        return self._in_epoch(group, epoch, ROOMS, name)

    def epochs_before(self, group: str, epoch: int) -> tuple[bytes, bytes]:
        """The range of everything in earlier epochs of a group."""
        epochs = f"{self._groups}{group}/epochs/"
        return epochs.encode(), f"{epochs}{epoch:016x}/".encode()

    def parse(self, key: bytes) -> ParsedKey | None:
        """What a key names; None for one that this version does not know."""
        match key.decode(errors="replace").removeprefix(self._groups).split("/"):
            case [group, "header"]:
                return ParsedKey(group, HEADER)
            case [group, "epochs", epoch, kind, name]:
                return ParsedKey(group, kind, int(epoch, 16), name)
            case _:
                return None

    def _in_epoch(self, group: str, epoch: int, kind: str, name: str) -> bytes:
        return f"{self._groups}{group}/epochs/{epoch:016x}/{kind}/{name}".encode()


def rank_key(name: str) -> RankKey:
    """The rank that a key's name names."""
    dp, cp, tp, pp = map(int, name.split("."))
    return RankKey(dp, cp, tp, pp)


def _rank_name(key: RankKey) -> str:
    return ".".join(map(str, key))


def _all_under(prefix: str) -> tuple[bytes, bytes]:
    first = prefix.encode()
    return first, first[:-1] + bytes([first[-1] + 1])
