"""`messages.json`: messages, each with its bytes and its canonical JSON."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import NULL_VALUE

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2 as errors
from interlock.kv.v1 import pool_name_pb2, spec_layout_pb2
from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.reasons import Reason
from scripts.make_vectors.files import Files, canonical_json, hex_bytes, json_file

UINT32_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1
ROOMS = [0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, UINT64_MAX]
"""Where doubles and signed 64-bit numbers go wrong, and the ends of the range."""

STARTED_AT = 1_700_000_000_000_000_001
"""A start in Unix nanoseconds; over 2^53, as every one is since April 1970."""


@dataclass(frozen=True)
class Case:
    """A message under a name that says what it is about.

    Attributes:
        also_bytes: other bytes that mean the same; a reader accepts them and never writes them.
        also_json: other JSON texts that mean the same; likewise.
        unknown: bytes of fields that this version does not know, which stand after the message's own.
    """

    about: str
    message: Message
    also_bytes: tuple[bytes, ...] = field(default=())
    also_json: tuple[str, ...] = field(default=())
    unknown: bytes = b""


def message_files() -> Files:
    return {"messages.json": json_file([_entry(case) for case in cases()])}


def _entry(case: Case) -> dict[str, Any]:
    known = hex_bytes(case.message)
    entry: dict[str, Any] = {
        "about": case.about,
        "type": case.message.DESCRIPTOR.full_name,
        "hex": known + case.unknown.hex(),
        "json": canonical_json(case.message),
    }
    if case.unknown:
        entry["hex_without_unknown_fields"] = known
    if case.also_bytes:
        entry["also_hex"] = [other.hex() for other in case.also_bytes]
    if case.also_json:
        entry["also_json"] = list(case.also_json)
    return entry


def cases() -> Iterator[Case]:
    yield from _layouts()
    yield from _values()
    yield from _registration()
    yield from _reads()
    yield from _watch()
    yield from _rooms()
    yield from _refusals()
    yield from _vision()
    yield from _pictures()
    yield from _frames()
    yield from _regions_and_profiles()


KEY = pb.RankKey(dp=1, cp=2, tp=3, pp=4)
SIZES = pb.ParallelSizes(dp=2, cp=4, tp=8, pp=16)
INSTANCE = pb.Instance(id="3f1c9a52-7f0e-4c55-8f5b-0d6a51d3b9d0", started_at=STARTED_AT)
LAYOUT = spec_layout_pb2.SpecLayout(
    num_draft_tokens=3,
    compression_ratios=[1, 4, 128],
    kv_layer_ids=[0, 1, 2],
    kv_item_lens=[1024, 2**53 + 1, UINT64_MAX],
    state_types=["swa", "c128_state"],
    state_item_lens=[
        spec_layout_pb2.StateItemLens(item_lens=[64, 2**63]),
        spec_layout_pb2.StateItemLens(),
    ],
    extra_json={"depth": "1", "ratio": "1.0", "table": '{"a":[1,2.50],"b":9007199254740993}'},
)
ROUTE = pb.Route(
    key=KEY,
    incarnation=STARTED_AT,
    sizes=SIZES,
    rank_ip="2001:db8::1",
    rank_port=30_000,
    page_size=64,
    kv_cache_dtype="fp8_e4m3",
    kv_layout="page_first",
    dsv41_spec_layout=spec_layout_pb2.SpecLayoutDeclaration(layout=LAYOUT),
    load_balance_method="minimum_tokens",
    enable_dsa_cache_layer_split=True,
    enable_kv_cache_sharding=True,
    decode_allocation_policy="late",
    pools=[pool_name_pb2.POOL_NAME_KV, pool_name_pb2.POOL_NAME_SWA, pool_name_pb2.POOL_NAME_DRAFT_SWA],
    prefill_http_port=8000,
)
SMALL_ROUTE = pb.Route(
    key=pb.RankKey(),
    incarnation=1,
    sizes=pb.ParallelSizes(dp=1, cp=1, tp=1, pp=1),
    rank_ip="10.0.0.1",
    rank_port=9000,
    page_size=64,
)
STATE = pb.GroupState(
    group="prefill-a",
    revision=1_700_000_000_000_001,
    epoch=3,
    instance=INSTANCE,
    floor=INSTANCE,
    registered=1,
    expected=1024,
    missing_keys=[pb.RankKey(), pb.RankKey(tp=1)],
    missing_count=1023,
    undeclared_keys=[KEY],
    undeclared_count=1,
)


def _layouts() -> Iterator[Case]:
    declaration = spec_layout_pb2.SpecLayoutDeclaration
    yield Case("a layout with everything in it", LAYOUT)
    yield Case("an empty layout", spec_layout_pb2.SpecLayout())
    yield Case("no draft tokens, said so: present and 0", spec_layout_pb2.SpecLayout(num_draft_tokens=0))
    yield Case(
        "extra JSON is text: 1 and 1.0 differ, and so do the orders of keys; numbers over 2^53 stay as they are spelt",
        spec_layout_pb2.SpecLayout(
            extra_json={
                "a": "1",
                "b": "1.0",
                "c": "9007199254740993",
                "d": "18446744073709551616",
                "e": '{"a":1,"b":2}',
                "f": '"\\u00e9\\n"',
                "g": "1e400",
                "h": "-0",
                "i": "null",
            }
        ),
    )
    yield Case("a row of state without numbers", spec_layout_pb2.StateItemLens())
    yield Case(
        "numbers of the whole range; readers also take them one by one, and packed in two parts",
        spec_layout_pb2.StateItemLens(item_lens=[0, 127, 128, UINT64_MAX]),
        also_bytes=(
            bytes.fromhex("0800087f08800108ffffffffffffffffff01"),
            bytes.fromhex("0a02007f0a0c8001ffffffffffffffffff01"),
        ),
    )
    yield Case("undeclared: no state is set", declaration())
    yield Case("declared none: the number of NullValue is 0, but it is set", declaration(none=NULL_VALUE))
    yield Case("declared: an empty layout is set", declaration(layout=spec_layout_pb2.SpecLayout()))
    yield Case("declared", declaration(layout=LAYOUT))


def _values() -> Iterator[Case]:
    yield Case("the first rank: all is 0, and nothing is written", pb.RankKey())
    yield Case(
        "a rank key; readers take fields in any order, and the last of two",
        KEY,
        also_bytes=(bytes.fromhex("2004180310020801"), bytes.fromhex("08090801100218032004")),
    )
    yield Case("the largest uint32, which is no int32", pb.RankKey(dp=UINT32_MAX, cp=2**31, tp=2**31 - 1))
    yield Case("sizes", SIZES)
    yield Case("an instance", INSTANCE)
    yield Case("an instance whose start no double holds", pb.Instance(id="a", started_at=2**53 + 1))
    yield Case("an instance whose start no int64 holds", pb.Instance(id="b", started_at=2**63))
    yield Case("the latest instance", pb.Instance(id="c", started_at=UINT64_MAX))
    yield Case("a route with everything in it", ROUTE)
    yield Case("a route with no more than it needs", SMALL_ROUTE)
    absent = pb.Route(key=pb.RankKey(), rank_ip="10.0.0.1")
    yield Case("absent: what is optional and left out is not there", absent)
    zero = pb.Route(
        key=pb.RankKey(),
        rank_ip="10.0.0.1",
        kv_cache_dtype="",
        kv_layout="",
        dsv41_spec_layout=spec_layout_pb2.SpecLayoutDeclaration(),
        load_balance_method="",
        enable_dsa_cache_layer_split=False,
        enable_kv_cache_sharding=False,
        decode_allocation_policy="",
        prefill_http_port=0,
    )
    yield Case("present and zero: each optional field is there, and differs from the one before", zero)
    for text in ("::1", "2001:db8::1", "fe80::1", "::ffff:10.0.0.1", "[2001:DB8:0:0::1]", "host-1.example"):
        yield Case("an address is text, whatever it looks like", pb.Route(rank_ip=text))
    yield Case(
        "pools that a newer peer knows: unknown numbers of an enum are kept as they are",
        pb.Route(pools=[pool_name_pb2.POOL_NAME_KV, 99, 2**31 - 1, -1]),
        also_bytes=(bytes.fromhex("7001706370ffffffff0770ffffffffffffffffff01"),),
        also_json=('{"pools":["POOL_NAME_KV",99,2147483647,-1]}', '{"pools":[1,99,2147483647,-1]}'),
    )
    yield Case(
        "fields that a newer peer knows, of every wire type: whoever hands a message on keeps them",
        SMALL_ROUTE,
        unknown=bytes.fromhex(
            "a00607"  # field 100: a varint, 7
            "a9060100000000000000"  # field 101: 64 bits
            "b20603616263"  # field 102: text
            "bd0601000000"  # field 103: 32 bits
        ),
    )
    yield Case("every pool", pb.Route(pools=pool_name_pb2.PoolName.values()[1:]))
    info = pb.PrefillServerInfo(
        sizes=SIZES,
        page_size=64,
        kv_cache_dtype="bfloat16",
        kv_layout="page_first",
        dsv41_spec_layout=spec_layout_pb2.SpecLayoutDeclaration(none=NULL_VALUE),
        load_balance_method="follow_bootstrap_room",
        enable_dsa_cache_layer_split=True,
        enable_kv_cache_sharding=True,
        decode_allocation_policy="early",
        pools=[pool_name_pb2.POOL_NAME_KV],
        prefill_http_port=8000,
    )
    yield Case("what a ready group shares", info)
    yield Case("the state of a group that lacks ranks", STATE)
    ready = pb.GroupState(group="default", revision=2**53 + 1, epoch=1, registered=1, expected=1, ready=True)
    yield Case("the state of a group that is ready", ready)
    for about, seconds, nanos in (
        ("30 seconds", 30, 0),
        ("half a second has three digits", 0, 500_000_000),
        ("a microsecond has six", 1, 1_000),
        ("a nanosecond has nine", 0, 1),
        ("a negative time has one sign", -1, -500_000_000),
        ("the longest time", 315_576_000_000, 999_999_999),
    ):
        yield Case(f"a lease: {about}", pb.Lease(ttl=Duration(seconds=seconds, nanos=nanos)))
    yield Case("a lease of no time, said so", pb.Lease(ttl=Duration()))
    yield Case("a lease that says nothing of its time", pb.Lease())


def _registration() -> Iterator[Case]:
    register = pb.RegisterRouteRequest
    yield Case(
        "a registration with everything in it",
        register(
            group="prefill-a",
            route=ROUTE,
            instance=INSTANCE,
            expected_revision=1_700_000_000_000_001,
            lease_ttl=Duration(seconds=30),
        ),
    )
    bare = register(route=SMALL_ROUTE, instance=INSTANCE)
    yield Case("no expected revision: the server orders registrations", bare)
    first = register(route=SMALL_ROUTE, instance=INSTANCE, expected_revision=0)
    yield Case("expected revision 0, said so: the group must have no live route", first)
    yield Case(
        "the route stands",
        pb.RegisterRouteResponse(
            revision=UINT64_MAX,
            epoch=1,
            registered=2,
            expected=2,
            ready=True,
            lease=pb.Lease(ttl=Duration(seconds=30)),
        ),
    )
    lease = pb.LeaseRef(group="prefill-a", key=KEY, instance=INSTANCE, incarnation=STARTED_AT)
    yield Case(
        "a rank leaves",
        pb.DeregisterRouteRequest(group="prefill-a", key=KEY, instance=INSTANCE, incarnation=STARTED_AT),
    )
    yield Case("a rank left", pb.DeregisterRouteResponse(removed=True, revision=2**53 + 1))
    yield Case("there was no such rank", pb.DeregisterRouteResponse())
    yield Case("one lease", lease)
    yield Case("two renewals", pb.KeepAliveRequest(leases=[lease, pb.LeaseRef(key=pb.RankKey(), incarnation=1)]))
    renewed = pb.LeaseRenewal(lease=lease, ttl=Duration(seconds=30))
    gone = pb.LeaseRenewal(lease=lease, ttl=Duration())
    yield Case("renewed", renewed)
    yield Case("there is no such lease: its time is there, and 0", gone)
    yield Case("answers to two renewals", pb.KeepAliveResponse(renewals=[renewed, gone]))
    yield Case("the floor is moved", pb.ForceEpochRequest(group="prefill-a", floor=INSTANCE))
    yield Case("the floor is taken away", pb.ForceEpochRequest(group="prefill-a"))
    yield Case("an epoch was begun", pb.ForceEpochResponse(revision=2**53 + 1, epoch=4, dropped_routes=8))


def _reads() -> Iterator[Case]:
    yield Case("the default group, now", pb.GetPrefillServerInfoRequest())
    yield Case("a group, from a revision on", pb.GetPrefillServerInfoRequest(group="prefill-a", min_revision=2**53 + 1))
    yield Case(
        "from revision 0 on, said so; readers take numbers as text and as numbers, and names of either spelling",
        pb.GetPrefillServerInfoRequest(min_revision=0),
        also_json=('{"min_revision":"0"}', '{"minRevision":0}'),
    )
    yield Case(
        "the aggregate",
        pb.GetPrefillServerInfoResponse(
            info=pb.PrefillServerInfo(sizes=SIZES, page_size=64),
            revision=2**53 + 1,
            epoch=2,
            instance=INSTANCE,
        ),
    )
    yield Case("one rank", pb.GetRankInfoRequest(group="prefill-a", key=KEY, min_revision=1))
    yield Case("where the rank is", pb.GetRankInfoResponse(rank_ip="::1", rank_port=65535, revision=1, epoch=1))
    yield Case("a page of groups", pb.ListGroupsRequest(page_size=2, page_token="cHJlZmlsbC1h"))
    yield Case("one page of groups", pb.ListGroupsResponse(groups=[STATE], next_page_token="cHJlZmlsbC1h"))
    server = pb.DecodeServer(
        page_size=64,
        kv_cache_dtype="bfloat16",
        kv_layout="page_first",
        dsv41_spec_layout=spec_layout_pb2.SpecLayoutDeclaration(layout=LAYOUT),
        sizes=pb.ParallelSizes(dp=1, cp=1, tp=8, pp=1),
        pools=[pool_name_pb2.POOL_NAME_KV],
    )
    yield Case("a decode server", server)
    yield Case(
        "does it fit?", pb.CheckCompatibilityRequest(group="prefill-a", decode_server=server, min_revision=2**63)
    )
    found = pb.Incompatibility(
        field="page_size", prefill_value="64", decode_value="128", message="pages must be of one size"
    )
    yield Case("how it does not fit", found)
    yield Case(
        "it does not fit",
        pb.CheckCompatibilityResponse(incompatibilities=[found], ready=True, revision=2**53 + 1, epoch=1),
    )


def _watch() -> Iterator[Case]:
    yield Case("follow the default group from its snapshot on", pb.WatchTopologyRequest())
    yield Case("go on after a revision", pb.WatchTopologyRequest(group="prefill-a", after_revision=2**53 + 1))
    yield Case("go on after revision 0, said so", pb.WatchTopologyRequest(after_revision=0))
    snapshot = pb.TopologySnapshot(state=STATE, routes=[ROUTE])
    started = pb.EpochStarted(epoch=3, instance=INSTANCE)
    events = [
        pb.TopologyEvent(epoch_started=started),
        pb.TopologyEvent(route_removed=pb.RouteRemoved(key=KEY, incarnation=STARTED_AT)),
        pb.TopologyEvent(route_registered=pb.RouteRegistered(route=SMALL_ROUTE)),
    ]
    change = pb.TopologyChange(state=STATE, events=events)
    yield Case("a snapshot", snapshot)
    yield Case("an epoch started", started)
    yield Case("an epoch that an admin forced", pb.EpochStarted(epoch=4))
    yield Case("a route came", events[2].route_registered)
    yield Case("a route went", events[1].route_removed)
    for event in events:
        yield Case("an event", event)
    yield Case(
        "an event that a newer peer knows: no event of this version is set",
        pb.TopologyEvent(),
        unknown=bytes.fromhex("a2060408011002"),
    )
    yield Case("what one revision changed", change)
    yield Case("nothing new", pb.WatchProgress())
    response = pb.WatchTopologyResponse
    yield Case("a part of a snapshot", response(revision=2**53 + 1, snapshot=snapshot))
    yield Case("a whole change", response(revision=2**53 + 1, last=True, change=change))
    yield Case("progress: its message is empty, but it is set", response(revision=1, last=True, progress={}))


def _rooms() -> Iterator[Case]:
    assignments = [pb.RoomAssignment(room=room, dp_rank=at) for at, room in enumerate(ROOMS)]
    for assignment in assignments:
        yield Case(f"room {assignment.room}", assignment)
    yield Case("rooms of the whole range", pb.RegisterDpRanksRequest(group="prefill-a", assignments=assignments))
    yield Case("they are kept", pb.RegisterDpRanksResponse(registered=7, overwritten=1))
    yield Case("which DP ranks serve them?", pb.QueryDpRanksRequest(group="prefill-a", rooms=ROOMS))
    yield Case("these do", pb.QueryDpRanksResponse(assignments=assignments))
    yield Case("tell when they are known", pb.WaitDpRanksRequest(group="prefill-a", rooms=ROOMS))
    yield Case("some became known", pb.WaitDpRanksResponse(assignments=assignments[:1]))
    yield Case("the rest did not", pb.WaitDpRanksResponse(unknown_rooms=ROOMS[1:], last=True))


def _refusals() -> Iterator[Case]:
    yield Case(
        "a lost race, with the route that stands",
        errors.RevisionConflict(revision=2**53 + 1, epoch=1, instance=INSTANCE, standing_route=ROUTE),
    )
    yield Case(
        "a lost race, the route too large to be whole",
        errors.RevisionConflict(revision=1, epoch=1, standing_route=SMALL_ROUTE, layout_omitted=True),
    )
    mismatch = errors.FieldMismatch(field="page_size", standing_value="64", offered_value="128", held_by=KEY)
    yield Case("one value that differs", mismatch)
    yield Case("values that differ", errors.ContractMismatch(mismatches=[mismatch], total_count=13, truncated=True))
    yield Case("a stale launch", errors.StaleInstance(floor=INSTANCE))
    yield Case(
        "a stale life of a rank",
        errors.StaleIncarnation(key=KEY, newest_incarnation=UINT64_MAX, deregistered=True),
    )
    yield Case("a group that is not ready", errors.NotReady(state=STATE))


PROFILE = pp.VisionProfile(
    patch_size=14,
    downsample_ratio=3,
    max_image_tokens=384,
    min_pixels=147_456,
    max_wh_ratio=8,
    image_mean=[0.5, 0.25, 0.0],
    image_std=[0.5, 1.0, 2.0],
)
PLAN = pp.Plan(
    canvas_width=686,
    canvas_height=434,
    resize_width=686,
    resize_height=431,
    top=2,
    left=1,
    grid_width=49,
    grid_height=31,
    token_grid_width=17,
    token_grid_height=11,
    token_count=200,
)
ERROR = pp.ImageError(
    code=Reason.IMAGE_TRUNCATED.code,
    reason=Reason.IMAGE_TRUNCATED,
    message='text for people: <b> & "quotes" \\ \u00e9 \u9375 \U0001f511 \x00 \x7f \u2028',
    field="encoded",
)
BUSY = pp.ImageError(
    code=Reason.CREDITS_EXCEEDED.code,
    reason=Reason.CREDITS_EXCEEDED,
    message="too many pictures are in flight",
    retry_delay=Duration(nanos=250_000_000),
)


def _vision() -> Iterator[Case]:
    selector = pp.ProfileSelector
    yield Case("a profile", PROFILE)
    yield Case("a profile with no limit of its width", pp.VisionProfile(patch_size=14, min_pixels=2**53 + 1))
    yield Case(
        "numbers that float32 holds exactly; any other prints differently from language to language",
        pp.VisionProfile(image_mean=[0.5, 2**-10, 16_777_216.0]),
        also_json=('{"imageMean":[5e-1,"0.0009765625",1.6777216e7]}',),
    )
    yield Case("the server's profile", selector())
    yield Case("a profile by name", selector(name="deepseek-v4.1"))
    yield Case("a profile by the empty name, which is set", selector(name=""))
    yield Case("a profile in full", selector(inline=PROFILE))
    yield Case("a size", pp.ImageSize(width=1920, height=1080))
    yield Case("a plan", PLAN)
    yield Case("black", pp.Rgb())
    yield Case("a colour", pp.Rgb(red=255, green=128, blue=1))
    options = pp.DecodeOptions
    yield Case("as the reference decodes", options())
    for orientation in pp.ExifOrientation.values():
        for alpha in pp.AlphaHandling.values():
            for grey in pp.SixteenBitGrey.values():
                if orientation == alpha == grey or 0 in (orientation + alpha, alpha + grey):
                    yield Case(
                        "enum numbers and names",
                        options(exif_orientation=orientation, alpha_handling=alpha, sixteen_bit_grey=grey),
                    )
    yield Case("over black, said so: a message at its defaults is set", options(background=pp.Rgb()))
    yield Case(
        "over a colour, by an option that a newer peer knows",
        options(alpha_handling=7, background=pp.Rgb(red=1, green=2, blue=3)),
    )
    yield Case(
        "plans of two sizes",
        pp.PlanImagesRequest(
            profile=selector(name="deepseek-v4.1"),
            sizes=[pp.ImageSize(width=97, height=61), pp.ImageSize()],
            with_token_types=True,
        ),
    )
    planned = pp.PlanResult(plan=PLAN, token_types=b"\x00\x01\x02\x03")
    yield Case("a plan with its token types", planned)
    yield Case("no plan", pp.PlanResult(error=ERROR))
    yield Case("plans", pp.PlanImagesResponse(results=[planned, pp.PlanResult(error=ERROR)]))


def _pictures() -> Iterator[Case]:
    request = pp.PreprocessImageRequest
    raw = pp.RawRgb(width=1, height=2, data=bytes([0, 127, 128, 255, 10, 13]))
    target = pp.RegionTarget(handle="4b0f", offset=2**53 + 2, size=2**53 + 4)
    named = pp.SourceHash(
        sha256=bytes(range(32)), kind=pp.SOURCE_KIND_RAW_RGB, total_bytes=2**53 + 1, width=1, height=2
    )
    options = pp.DecodeOptions(exif_orientation=pp.EXIF_ORIENTATION_APPLY)
    selector = pp.ProfileSelector(inline=PROFILE)
    yield Case("raw pixels", raw)
    yield Case("a place in shared memory", target)
    yield Case("a picture's name", named)
    yield Case("no source", request())
    yield Case("a source of no bytes, which is set", request(encoded=b""))
    yield Case(
        "bytes are base64 in JSON; readers take the alphabet for URLs too, and no padding",
        request(encoded=bytes([0xFB, 0xFF, 0xBF, 0x00])),
        also_json=('{"encoded":"-_-_AA"}', '{"encoded":"+/+/AA"}'),
    )
    yield Case("a picture", request(image_id="a", encoded=b"\x89PNG", profile=selector, decode_options=options))
    yield Case("a picture of raw pixels, with its geometry and its place", request(raw=raw, plan=PLAN, region=target))
    yield Case("a picture by its name", request(hash=named))
    step = pp.PreprocessImagesRequest
    begin = pp.ImageBegin(
        image_id="\u9375-1",
        kind=pp.SOURCE_KIND_RAW_RGB,
        total_bytes=2**53 + 1,
        width=1,
        height=2,
        profile=selector,
        decode_options=options,
        plan=PLAN,
        region=target,
        source_sha256=bytes(range(32)),
        timeout=Duration(seconds=2, nanos=500_000_000),
    )
    yield Case("a picture of a stream, with everything in it", begin)
    yield Case("no hash", pp.ImageBegin(image_id="a", kind=pp.SOURCE_KIND_ENCODED, total_bytes=4))
    yield Case("a hash of no bytes, which is set", pp.ImageBegin(image_id="a", source_sha256=b""))
    data = pp.ImageData(image_id="a", offset=2**53 + 1, data=b"\x00\xff")
    yield Case("a part", data)
    yield Case("an empty part", pp.ImageData(image_id="a"))
    yield Case("the end of a picture", pp.ImageEnd(image_id="a"))
    yield Case("a picture that is not wanted", pp.ImageCancel(image_id="a"))
    yield Case("a step: begin", step(begin=begin))
    yield Case("a step: data", step(data=data))
    yield Case("a step: end", step(end=pp.ImageEnd(image_id="a")))
    yield Case("a step: cancel, of the empty id", step(cancel=pp.ImageCancel()))
    yield Case("no step", step())


def _frames() -> Iterator[Case]:
    frame = pp.PatchFrame
    settings = pp.StreamSettings(max_images_in_flight=64, max_bytes_in_flight=2**53 + 1)
    header = pp.PatchHeader(
        plan=PLAN,
        patch_size=14,
        dtype=pp.PATCH_DTYPE_BF16,
        total_bytes=2**53 + 1,
        source_size=pp.ImageSize(width=97, height=61),
        source_format="JPEG",
    )
    chunk = pp.PatchChunk(first_patch=7, data=bytes.fromhex("80bf803f"))
    trailer = pp.PatchTrailer(
        crc32c=0xE3069283,
        queue_time=Duration(nanos=1_000),
        decode_time=Duration(),
        kernel_time=Duration(seconds=1, nanos=1),
        from_cache=True,
    )
    yield Case("credits", settings)
    yield Case("a header", header)
    yield Case("a header of a type of numbers that a newer peer knows", pp.PatchHeader(dtype=2))
    yield Case("a chunk", chunk)
    yield Case("a chunk of no bytes", pp.PatchChunk())
    yield Case("a trailer; its CRC is no int32", trailer)
    yield Case("an error; its message is any text", ERROR)
    yield Case("an error that goes away", BUSY)
    yield Case("send the source", pp.SourceNeeded())
    yield Case("frame: credits", frame(settings=settings))
    yield Case("frame: header", frame(image_id="a", header=header))
    yield Case("frame: chunk", frame(image_id="a", chunk=chunk))
    yield Case("frame: trailer", frame(image_id="a", trailer=trailer))
    yield Case("frame: error", frame(image_id="a", error=ERROR))
    yield Case("frame: send the source", frame(image_id="a", source_needed={}))
    yield Case("a frame that a newer peer knows: none of this version is set", frame(), unknown=bytes.fromhex("a20600"))


def _regions_and_profiles() -> Iterator[Case]:
    ttl = Duration(seconds=60)
    region = pp.Region(file_name="patches", size=2**53 + 1, ttl=ttl)
    yield Case("register a region", pp.RegisterRegionRequest(file_name="patches", size=2**53 + 1, ttl=ttl))
    yield Case("a region was registered", pp.RegisterRegionResponse(handle="4b0f", ttl=ttl))
    yield Case("forget a region", pp.UnregisterRegionRequest(handle="4b0f"))
    yield Case("a region was forgotten", pp.UnregisterRegionResponse(removed=True))
    yield Case("a page of regions", pp.ListRegionsRequest(page_size=2, page_token="cGF0Y2hlcw"))
    yield Case("a region", region)
    yield Case("one page of regions", pp.ListRegionsResponse(regions=[region], next_page_token="cGF0Y2hlcw"))
    named = pp.NamedProfile(name="deepseek-v4.1", profile=PROFILE, is_default=True)
    yield Case("which profiles?", pp.ListProfilesRequest())
    yield Case("a profile with its name", named)
    yield Case(
        "what a server works with",
        pp.ListProfilesResponse(
            profiles=[named],
            kernel="simd",
            available_kernels=["numexpr", "reference", "simd"],
            max_pixels=178_956_970,
            max_source_bytes=2**53 + 1,
        ),
    )
