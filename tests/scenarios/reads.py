"""How scenarios look at a group."""

from bootstrap.calls import Refused, refused
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub


async def snapshot(stub: BootstrapServiceStub, group: str) -> pb.TopologySnapshot:
    """The whole group."""
    call = stub.WatchTopology(pb.WatchTopologyRequest(group=group))
    whole = pb.TopologySnapshot()
    try:
        while True:
            message = await call.read()
            whole.state.CopyFrom(message.snapshot.state)
            whole.routes.extend(message.snapshot.routes)
            if message.last:
                return whole
    finally:
        call.cancel()


async def info(stub: BootstrapServiceStub, group: str) -> pb.GetPrefillServerInfoResponse:
    return await stub.GetPrefillServerInfo(pb.GetPrefillServerInfoRequest(group=group))


async def not_ready(stub: BootstrapServiceStub, group: str) -> tuple[Refused, pb.GroupState]:
    """The refusal of a group that is not ready, and the state that it tells."""
    refusal = await refused(info(stub, group))
    assert (refusal.code.name, refusal.reason) == ("UNAVAILABLE", "NOT_READY")
    return refusal, refusal.detail(errors_pb2.NotReady).state


async def deregister(
    stub: BootstrapServiceStub, group: str, key: pb.RankKey, instance: pb.Instance, incarnation: int = 1
) -> pb.DeregisterRouteResponse:
    return await stub.DeregisterRoute(
        pb.DeregisterRouteRequest(group=group, key=key, instance=instance, incarnation=incarnation)
    )


async def renew(
    stub: BootstrapServiceStub, group: str, key: pb.RankKey, instance: pb.Instance, incarnation: int = 1
) -> float:
    """Renews one lease; gives its TTL in seconds, 0 if there is none."""
    call = stub.KeepAlive()
    lease = pb.LeaseRef(group=group, key=key, instance=instance, incarnation=incarnation)
    try:
        await call.write(pb.KeepAliveRequest(leases=[lease]))
        (renewal,) = (await call.read()).renewals
    finally:
        call.cancel()
    assert renewal.lease == lease
    return renewal.ttl.ToTimedelta().total_seconds()
