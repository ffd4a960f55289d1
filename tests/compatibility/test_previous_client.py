"""A client that was built from the last release works against today's server, in all that it knows."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from compatibility.previous import bootstrap, kind, preprocess, stream_of
from interlock.vision import PROFILES, decode, kernels, plan
from vectors.reading import ROOT, message_type, read

PICTURE = (ROOT / "tests/data/corpus/png_3x2.png").read_bytes()
TRUNCATED = (ROOT / "tests/data/corpus/png_truncated.png").read_bytes()
LAUNCH = {"id": "launch-1", "started_at": 1}
ROOMS = [2**53 + 1, 2**63, 2**64 - 1]


def registration(tp, **fields):
    route = {
        "key": {"tp": tp},
        "incarnation": 1,
        "sizes": {"dp": 1, "cp": 1, "tp": 2, "pp": 1},
        "rank_ip": "10.0.0.1",
        "rank_port": 9000 + tp,
        "page_size": 64,
        **fields.pop("route", {}),
    }
    return bootstrap("RegisterRouteRequest", route=route, instance=LAUNCH, **fields)


async def refusal(call, detail):
    """Reason and typed detail of a call that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    status = status_pb2.Status.FromString(dict(refused.value.trailing_metadata())["grpc-status-details-bin"])
    info, typed = error_details_pb2.ErrorInfo(), bootstrap(detail)
    assert status.details[0].Unpack(info)
    typed.ParseFromString(status.details[1].value)
    assert status.details[1].TypeName() == typed.DESCRIPTOR.full_name
    return info.reason, typed


async def test_ranks_register_and_a_decode_server_asks(previous_client):
    client = previous_client
    first = await client.RegisterRoute(registration(0, expected_revision=0))
    assert (first.epoch, first.registered, first.expected, first.ready) == (1, 1, 2, False)

    reason, conflict = await refusal(client.RegisterRoute(registration(1, expected_revision=0)), "RevisionConflict")
    assert (reason, conflict.revision, conflict.instance.id) == ("REVISION_CONFLICT", first.revision, "launch-1")
    reason, mismatch = await refusal(
        client.RegisterRoute(registration(1, route={"page_size": 128})), "ContractMismatch"
    )
    (difference,) = mismatch.mismatches
    assert (reason, difference.field, difference.standing_value, difference.offered_value) == (
        "CONTRACT_MISMATCH",
        "page_size",
        "64",
        "128",
    )
    reason, lacking = await refusal(client.GetPrefillServerInfo(bootstrap("GetPrefillServerInfoRequest")), "NotReady")
    assert (reason, [key.tp for key in lacking.state.missing_keys]) == ("NOT_READY", [1])

    watch = client.WatchTopology(bootstrap("WatchTopologyRequest", after_revision=first.revision))
    assert (await watch.read()).WhichOneof("body") == "progress"
    second = await client.RegisterRoute(registration(1, expected_revision=conflict.revision, lease_ttl={"seconds": 30}))
    assert (second.ready, second.lease.ttl.seconds) == (True, 30)
    seen = await watch.read()
    assert (seen.revision, seen.change.events[0].route_registered.route.key.tp) == (second.revision, 1)
    watch.cancel()

    info = await client.GetPrefillServerInfo(bootstrap("GetPrefillServerInfoRequest", min_revision=second.revision))
    assert (info.info.sizes.tp, info.info.page_size, info.info.load_balance_method) == (2, 64, "follow_bootstrap_room")
    rank = await client.GetRankInfo(bootstrap("GetRankInfoRequest", key={"tp": 1}))
    assert (rank.rank_ip, rank.rank_port) == ("10.0.0.1", 9001)
    groups = await client.ListGroups(bootstrap("ListGroupsRequest"))
    assert [(group.group, group.ready) for group in groups.groups] == [("default", True)]
    decode_server = {"page_size": 128, "sizes": {"dp": 1, "cp": 1, "tp": 2, "pp": 1}}
    answer = await client.CheckCompatibility(bootstrap("CheckCompatibilityRequest", decode_server=decode_server))
    assert [found.field for found in answer.incompatibilities] == ["page_size"]

    lease = {"key": {"tp": 1}, "instance": LAUNCH, "incarnation": 1}
    renewals = client.KeepAlive(stream_of([bootstrap("KeepAliveRequest", leases=[lease])]))
    assert [renewal.ttl.seconds for renewal in (await renewals.read()).renewals] == [30]
    gone = await client.DeregisterRoute(bootstrap("DeregisterRouteRequest", **lease))
    assert gone.removed
    forced = await client.ForceEpoch(bootstrap("ForceEpochRequest"))
    assert (forced.epoch, forced.dropped_routes) == (2, 1)


async def test_rooms_find_their_ranks(previous_client):
    client = previous_client
    await client.RegisterRoute(registration(0))
    assignments = [{"room": room, "dp_rank": 0} for room in ROOMS]
    kept = await client.RegisterDpRanks(bootstrap("RegisterDpRanksRequest", assignments=assignments))
    assert (kept.registered, kept.overwritten) == (3, 0)
    found = await client.QueryDpRanks(bootstrap("QueryDpRanksRequest", rooms=[*ROOMS, 7]))
    assert [assignment.room for assignment in found.assignments] == ROOMS
    waited = client.WaitDpRanks(bootstrap("WaitDpRanksRequest", rooms=ROOMS))
    told = [message async for message in waited]
    assert sorted(one.room for message in told for one in message.assignments) == ROOMS
    assert told[-1].last


async def test_pictures_become_patches(previous_client):
    client = previous_client
    served = await client.ListProfiles(preprocess("ListProfilesRequest"))
    (default,) = (named.name for named in served.profiles if named.is_default)
    expected = _reference(default)
    plans = await client.PlanImages(preprocess("PlanImagesRequest", sizes=[{"width": 3, "height": 2}, {}]))
    assert plans.results[0].plan.canvas_width > 0
    assert plans.results[1].error.reason == "NO_LEGAL_PLAN"
    frames = [frame async for frame in client.PreprocessImage(preprocess("PreprocessImageRequest", encoded=PICTURE))]
    assert b"".join(frame.chunk.data for frame in frames) == expected
    assert [frames[0].WhichOneof("frame"), frames[-1].WhichOneof("frame")] == ["header", "trailer"]

    def steps(image_id, data):
        yield {"begin": {"image_id": image_id, "kind": "SOURCE_KIND_ENCODED", "total_bytes": len(data)}}
        yield {"data": {"image_id": image_id, "data": data}}
        yield {"end": {"image_id": image_id}}

    requests = [
        preprocess("PreprocessImagesRequest", **step)
        for image_id, data in (("before", PICTURE), ("bad", TRUNCATED), ("after", PICTURE))
        for step in steps(image_id, data)
    ]
    answers = [frame async for frame in client.PreprocessImages(stream_of(requests))]
    assert answers[0].settings.max_images_in_flight > 0
    for image_id in ("before", "after"):
        assert b"".join(frame.chunk.data for frame in answers if frame.image_id == image_id) == expected
    (error,) = (frame.error for frame in answers if frame.WhichOneof("frame") == "error")
    assert error.reason == "IMAGE_TRUNCATED"


def _reference(profile_name):
    profile, picture = PROFILES[profile_name], decode(PICTURE)
    geometry = plan(picture.width, picture.height, profile)
    return kernels.get("reference").resize_patchify(picture.rgb, geometry, profile).tobytes()


def test_a_message_of_today_is_read_and_handed_on_whole():
    """Fields that came since are kept as unknown ones."""
    entries = [entry for entry in read("messages.json") if entry["type"].startswith("interlock.")]
    newer = 0
    for entry in entries:
        try:
            previous = kind(entry["type"])
        except KeyError:
            newer += 1  # a message that came since
            continue
        today = message_type(entry["type"]).FromString(bytes.fromhex(entry["hex"]))
        handed_on = previous.FromString(bytes.fromhex(entry["hex"])).SerializeToString()
        assert message_type(entry["type"]).FromString(handed_on) == today, entry["about"]
    assert newer < len(entries) / 10
