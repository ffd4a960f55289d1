"""Requests read from their messages, with every fault at once."""

import pytest

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.reasons import Reason
from interlock.topology import (
    DecodeServer,
    DeregisterRoute,
    ForceEpoch,
    InvalidFieldsError,
    ParallelSizes,
    RankKey,
    RegisterRoute,
)
from interlock.topology.messages import instance_to_message, rank_key_to_message, route_to_message
from interlock.topology.request_messages import (
    check_compatibility_from_message,
    deregister_route_from_message,
    force_epoch_from_message,
    get_rank_info_from_message,
    group_from_message,
    register_route_from_message,
)
from topology.examples import FULL_ROUTE, LAUNCH, route

KEY = RankKey(0, 0, 1, 0)


def faults(read, message):
    with pytest.raises(InvalidFieldsError) as caught:
        read(message)
    assert caught.value.refused.reason is Reason.INVALID_FIELD
    assert str(caught.value) == caught.value.refused.message
    return [field for field, _ in caught.value.refused.detail.violations]


def test_a_registration():
    message = pb.RegisterRouteRequest(
        group="prefill", route=route_to_message(FULL_ROUTE), instance=instance_to_message(LAUNCH), expected_revision=7
    )
    assert register_route_from_message(message) == ("prefill", RegisterRoute(FULL_ROUTE, LAUNCH, 7))


def test_a_registration_without_group_and_expected_revision():
    message = pb.RegisterRouteRequest(route=route_to_message(route()), instance=instance_to_message(LAUNCH))
    assert register_route_from_message(message) == ("default", RegisterRoute(route(), LAUNCH, None))


def test_expected_revision_zero_is_not_absent():
    message = pb.RegisterRouteRequest(
        route=route_to_message(route()), instance=instance_to_message(LAUNCH), expected_revision=0
    )
    assert register_route_from_message(message)[1].expected_revision == 0


def test_an_empty_registration_names_all_that_it_lacks():
    assert faults(register_route_from_message, pb.RegisterRouteRequest(group="No Group")) == [
        "group",
        "route.key",
        "route.sizes",
        "route.incarnation",
        "route.rank_ip",
        "route.rank_port",
        "route.page_size",
        "instance",
    ]


def test_a_deregistration():
    message = pb.DeregisterRouteRequest(
        group="g", key=rank_key_to_message(KEY), instance=instance_to_message(LAUNCH), incarnation=5
    )
    assert deregister_route_from_message(message) == ("g", DeregisterRoute(KEY, LAUNCH, 5))
    assert faults(deregister_route_from_message, pb.DeregisterRouteRequest(group="-")) == [
        "group",
        "key",
        "instance",
        "incarnation",
    ]


def test_a_forced_epoch():
    with_floor = pb.ForceEpochRequest(group="g", floor=instance_to_message(LAUNCH))
    assert force_epoch_from_message(with_floor) == ("g", ForceEpoch(LAUNCH))
    assert force_epoch_from_message(pb.ForceEpochRequest()) == ("default", ForceEpoch(None))
    faulty = pb.ForceEpochRequest(group="-", floor=pb.Instance(id="x"))
    assert faults(force_epoch_from_message, faulty) == ["group", "floor.started_at"]


def test_a_question_for_a_rank():
    message = pb.GetRankInfoRequest(key=rank_key_to_message(KEY))
    assert get_rank_info_from_message(message) == ("default", KEY)
    assert faults(get_rank_info_from_message, pb.GetRankInfoRequest(group="G")) == ["group", "key"]


def test_a_question_for_compatibility_is_checked_whole():
    message = pb.CheckCompatibilityRequest(
        decode_server=pb.DecodeServer(page_size=64, sizes=pb.ParallelSizes(dp=1, cp=1, tp=2, pp=1))
    )
    assert check_compatibility_from_message(message) == (
        "default",
        DecodeServer(page_size=64, sizes=ParallelSizes(1, 1, 2, 1)),
    )
    faulty = pb.CheckCompatibilityRequest(
        decode_server=pb.DecodeServer(sizes=pb.ParallelSizes(dp=1, cp=1, tp=0, pp=1), kv_layout="", pools=[99])
    )
    assert faults(check_compatibility_from_message, faulty) == [
        "decode_server.pools[0]",
        "decode_server.sizes.tp",
        "decode_server.page_size",
        "decode_server.kv_layout",
    ]
    assert faults(check_compatibility_from_message, pb.CheckCompatibilityRequest()) == [
        "decode_server.sizes",
        "decode_server.page_size",
    ]


def test_a_group_on_its_own():
    assert group_from_message(pb.WatchTopologyRequest(group="g")) == "g"
    assert group_from_message(pb.QueryDpRanksRequest()) == "default"
    assert faults(group_from_message, pb.WaitDpRanksRequest(group="a.b")) == ["group"]
