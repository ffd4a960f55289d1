"""The ranks of a prefill server, and how each registers with us and with the peer: the same values to both."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from google.protobuf.duration_pb2 import Duration

from interlock.bootstrap.v1 import bootstrap_pb2
from interlock.topology import Instance, ParallelSizes, RankKey
from interlock.topology.messages import instance_to_message, rank_key_to_message, sizes_to_message

PAGE_SIZE = 64
KV_CACHE_DTYPE = "bfloat16"
LEASE = Duration(seconds=3600)
"""Longer than a run, so that nothing has to renew it."""

Address = tuple[str, int]
Addresses = dict[RankKey, Address]


@dataclass(frozen=True)
class Launch:
    """One launch of a prefill server of some sizes."""

    sizes: ParallelSizes
    instance: Instance

    @classmethod
    def now(cls, sizes: ParallelSizes) -> "Launch":
        started_at = time.time_ns()
        return cls(sizes, Instance(f"launch-{started_at}", started_at))

    @cached_property
    def addresses(self) -> Addresses:
        """Where every rank listens: eight on each host."""
        return {
            key: (f"10.0.{number >> 11}.{number >> 3 & 255}", 20_000 + number % 8)
            for number, key in enumerate(self.sizes.rank_keys())
        }

    def register_requests(self, group: str) -> Iterator[bootstrap_pb2.RegisterRouteRequest]:
        """What each rank sends us, with a lease as the SDK asks for."""
        sizes, instance = sizes_to_message(self.sizes), instance_to_message(self.instance)
        for key, (ip, port) in self.addresses.items():
            yield bootstrap_pb2.RegisterRouteRequest(
                group=group,
                route=bootstrap_pb2.Route(
                    key=rank_key_to_message(key),
                    incarnation=self.instance.started_at,
                    sizes=sizes,
                    rank_ip=ip,
                    rank_port=port,
                    page_size=PAGE_SIZE,
                    kv_cache_dtype=KV_CACHE_DTYPE,
                ),
                instance=instance,
                lease_ttl=LEASE,
            )

    def put_bodies(self) -> Iterator[bytes]:
        """What each rank sends to the peer."""
        for key, (ip, port) in self.addresses.items():
            body = {
                "attn_tp_size": self.sizes.tp,
                "attn_tp_rank": key.tp,
                "attn_cp_size": self.sizes.cp,
                "attn_cp_rank": key.cp,
                "attn_dp_size": self.sizes.dp,
                "attn_dp_rank": key.dp,
                "pp_size": self.sizes.pp,
                "pp_rank": key.pp,
                "system_dp_size": 1,
                "system_dp_rank": 0,
                "rank_ip": ip,
                "rank_port": port,
                "page_size": PAGE_SIZE,
                "kv_cache_dtype": KV_CACHE_DTYPE,
            }
            yield json.dumps(body).encode()
