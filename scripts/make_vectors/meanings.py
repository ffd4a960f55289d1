"""`reasons.json` and `defaults.json`: what a proto does not say and clients rely on all the same."""

from typing import Any

from google.rpc import code_pb2

from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.preprocess.v1 import preprocess_pb2 as pp
from interlock.reasons import Reason
from interlock.topology import Accepted, RegisterRoute, Topology, prefill_server_info, transition
from interlock.topology.messages import instance_from_message, prefill_server_info_to_message, route_from_message
from interlock.topology.request_messages import group_from_message
from interlock.vision import PROFILES, DecodeOptions
from interlock_bootstrap.pages import parse_page
from interlock_preprocess.requests import profile_from_message, profile_message, read_image, read_profile
from scripts.make_vectors.files import Files, canonical_json, json_file
from scripts.make_vectors.messages import INSTANCE, SMALL_ROUTE, STARTED_AT

GROUP_REQUESTS = (
    pb.RegisterRouteRequest,
    pb.DeregisterRouteRequest,
    pb.LeaseRef,
    pb.GetPrefillServerInfoRequest,
    pb.GetRankInfoRequest,
    pb.WatchTopologyRequest,
    pb.CheckCompatibilityRequest,
    pb.ForceEpochRequest,
    pb.RegisterDpRanksRequest,
    pb.QueryDpRanksRequest,
    pb.WaitDpRanksRequest,
)


def meaning_files() -> Files:
    return {
        "reasons.json": json_file(
            [{"reason": reason, "code": reason.code, "code_name": code_pb2.Code.Name(reason.code)} for reason in Reason]
        ),
        "defaults.json": json_file([{"field": field, "absent_means": value} for field, value in _defaults().items()]),
    }


def _defaults() -> dict[str, Any]:
    group = group_from_message(pb.WatchTopologyRequest())
    return {
        **{f"{request.DESCRIPTOR.full_name}.group": group for request in GROUP_REQUESTS},
        f"{pb.ListGroupsRequest.DESCRIPTOR.full_name}.page_size": parse_page("", 0)[1],
        **_of_route(),
        **_of_picture(),
    }


def _of_route() -> dict[str, Any]:
    """What a group says for its ranks when they leave everything out."""
    request = RegisterRoute(route_from_message(SMALL_ROUTE), instance_from_message(INSTANCE))
    outcome = transition(Topology.empty("default"), request, STARTED_AT)
    assert isinstance(outcome, Accepted)
    info = prefill_server_info_to_message(prefill_server_info(outcome.topology))
    return {
        f"{pb.Route.DESCRIPTOR.full_name}.{name}": getattr(info, name)
        for name in (
            "load_balance_method",
            "enable_dsa_cache_layer_split",
            "enable_kv_cache_sharding",
            "decode_allocation_policy",
        )
    }


def _of_picture() -> dict[str, Any]:
    """What is used for a picture whose request leaves everything out."""
    picture, _ = read_image(pp.PreprocessImageRequest(encoded=b"x"))
    (profile,) = (name for name, profile in PROFILES.items() if profile == picture.profile)
    assert read_profile(pp.ProfileSelector()) == picture.profile
    mean_and_std = profile_message(
        profile_from_message(pp.VisionProfile(patch_size=14, downsample_ratio=3, max_image_tokens=384))
    )
    options = pp.DecodeOptions.DESCRIPTOR.full_name
    return {
        **{
            f"{request.DESCRIPTOR.full_name}.profile": {"name": profile}
            for request in (pp.PlanImagesRequest, pp.PreprocessImageRequest, pp.ImageBegin)
        },
        f"{pp.VisionProfile.DESCRIPTOR.full_name}.image_mean": list(mean_and_std.image_mean),
        f"{pp.VisionProfile.DESCRIPTOR.full_name}.image_std": list(mean_and_std.image_std),
        **{f"{options}.{name}": value for name, value in _decoding(picture.decode_options).items()},
    }


def _decoding(options: DecodeOptions) -> dict[str, Any]:
    red, green, blue = options.background
    return {
        "exif_orientation": f"EXIF_ORIENTATION_{options.exif_orientation.name}",
        "alpha_handling": f"ALPHA_HANDLING_{options.alpha_handling.name}",
        "sixteen_bit_grey": f"SIXTEEN_BIT_GREY_{options.sixteen_bit_grey.name}",
        "background": canonical_json(pp.Rgb(red=red, green=green, blue=blue)),
    }
