"""The copy of a group that a replica keeps, carried on by what the watch of etcd tells."""

from collections.abc import Iterable
from dataclasses import replace

from interlock.topology import Departed, RankKey, Route, SpecLayout, Topology
from interlock_bootstrap.stores.etcd.keys import HEADER, LAYOUTS, LEASES, RANKS, ParsedKey, rank_key
from interlock_bootstrap.stores.etcd.records import StoredRank, read_layout, read_rank, with_header
from interlock_bootstrap.stores.etcd.v1 import records_pb2
from interlock_bootstrap.stores.etcd.v3 import rpc_pb2 as rpc

KeyChange = tuple[ParsedKey, rpc.KeyValue, bool]
"""A key, how it stands now, and whether it is gone."""

_NOTHING = StoredRank(None, None, None)


class CopyBrokenError(Exception):
    """Keys changed in a way that no commit changes them: list anew."""


class GroupCopy:
    """One group as etcd holds it."""

    def __init__(self, group: str) -> None:
        self.topology = Topology.empty(group)
        """As last committed; a route whose lease ran out is there until a commit says that it went."""
        self.header_mod = 0
        """`mod_revision` of the header: what the next commit compares. 0: there is no header."""
        self.commit_id = b""
        """That of the last commit."""
        self.lease_ids: dict[RankKey, int] = {}
        """The etcd lease on which the lease of each route hangs."""
        self.lapsed: set[RankKey] = set()
        """Routes whose lease ran out, which no commit has taken away yet."""
        self.miscounted = False
        """The header counts other routes than there are: somebody else than us took a hand to the keys."""
        self._layouts: dict[str, SpecLayout] = {}

    def apply(self, changes: Iterable[KeyChange]) -> bool:
        """Takes in all that one revision of etcd changed in this group, or all keys of a listing.

        Returns:
            Whether it was a commit; if not, leases ran out.

        Raises:
            CopyBrokenError: It was neither. The copy is of no use any more.
        """
        by_kind: dict[str, list[KeyChange]] = {HEADER: [], LAYOUTS: [], RANKS: [], LEASES: []}
        for change in changes:
            by_kind.get(change[0].kind, []).append(change)
        if not by_kind[HEADER]:
            self._lapse(by_kind)
            return False
        _, kv, gone = by_kind[HEADER][0]
        if gone:
            raise CopyBrokenError(f"the header of group {self.topology.group!r} was deleted")
        header = records_pb2.Header.FromString(kv.value)
        if header.epoch != self.topology.epoch:
            self.topology = Topology(self.topology.group, epoch=header.epoch)
            self.lease_ids, self.lapsed, self._layouts = {}, set(), {}
        in_epoch = {kind: [each for each in found if each[0].epoch == header.epoch] for kind, found in by_kind.items()}
        for parsed, kv_of_layout, gone in in_epoch[LAYOUTS]:
            if not gone:
                self._layouts[parsed.name] = read_layout(kv_of_layout.value)
        for parsed, kv_of_lease, gone in in_epoch[LEASES]:
            if gone:
                self.lease_ids.pop(rank_key(parsed.name), None)
            else:
                self.lease_ids[rank_key(parsed.name)] = kv_of_lease.lease
        stored = {
            rank_key(parsed.name): _NOTHING if gone else read_rank(kv_of_rank.value, self._layouts)
            for parsed, kv_of_rank, gone in in_epoch[RANKS]
        }
        for parsed, _, gone in in_epoch[LAYOUTS]:
            if gone:
                self._layouts.pop(parsed.name, None)
        self.topology = with_header(_with_ranks(self.topology, stored), header)
        self.header_mod, self.commit_id = kv.mod_revision, header.commit_id
        self.lapsed = {
            key for key in self.lapsed | stored.keys() if key in self.topology.leases and key not in self.lease_ids
        }
        self.miscounted = header.routes != len(self.topology.routes)
        return True

    def _lapse(self, by_kind: dict[str, list[KeyChange]]) -> None:
        for parsed, _, gone in by_kind[LEASES]:
            key = rank_key(parsed.name)
            if parsed.epoch != self.topology.epoch:
                continue
            if not gone:
                raise CopyBrokenError(f"a lease of group {self.topology.group!r} came without a commit")
            self.lease_ids.pop(key, None)
            if key in self.topology.leases:
                self.lapsed.add(key)
        if any(parsed.epoch == self.topology.epoch for kind in (RANKS, LAYOUTS) for parsed, _, _ in by_kind[kind]):
            raise CopyBrokenError(f"records of group {self.topology.group!r} changed without a commit")


def _with_ranks(topology: Topology, stored: dict[RankKey, StoredRank]) -> Topology:
    """A topology with some ranks as they are stored; what did not change stays the very same object."""
    removed: list[RankKey] = []
    registered: list[Route] = []
    leases: dict[RankKey, int] = {}
    departed: dict[RankKey, Departed] = {}
    for key, rank in stored.items():
        if rank.route is None:
            removed.append(key)
        elif topology.routes.get(key) != rank.route:
            registered.append(rank.route)
        if rank.lease_ttl is not None and topology.leases.get(key) != rank.lease_ttl:
            leases[key] = rank.lease_ttl
        if rank.departed is not None and topology.departed.get(key) != rank.departed:
            departed[key] = rank.departed
    removed = [key for key in removed if key in topology.routes]
    unleased = [key for key, rank in stored.items() if rank.lease_ttl is None and key in topology.leases]
    forgotten = [key for key, rank in stored.items() if rank.departed is None and key in topology.departed]
    return replace(
        topology,
        routes=topology.routes.changed(removed, registered) if removed or registered else topology.routes,
        leases=topology.leases.changed(unleased, leases) if unleased or leases else topology.leases,
        departed=topology.departed.changed(forgotten, departed) if forgotten or departed else topology.departed,
    )
