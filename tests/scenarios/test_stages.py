"""Scenario from public reports: pipeline stages whose layouts name other layers.

`docs/decisions/layouts-of-pipeline-stages.md` says why the layout is compared over all stages.
"""

import grpc

from bootstrap.calls import key, refused, registration
from interlock.bootstrap.v1 import bootstrap_pb2 as pb
from interlock.bootstrap.v1 import errors_pb2
from interlock.kv.v1 import spec_layout_pb2 as kv
from scenarios.reads import info, not_ready, snapshot

SIZES = pb.ParallelSizes(dp=1, cp=1, tp=1, pp=2)


def layout(*layers: int) -> kv.SpecLayoutDeclaration:
    """The layout of these layers of a model of four."""
    return kv.SpecLayoutDeclaration(
        layout=kv.SpecLayout(
            num_draft_tokens=2,
            compression_ratios=[0, 2, 1, 2],
            kv_layer_ids=layers,
            kv_item_lens=[512] * len(layers),
            state_types=["swa", "swa"],
            state_item_lens=[kv.StateItemLens(item_lens=[64]), kv.StateItemLens(item_lens=[64])],
        )
    )


def stage(pp: int, group: str, declared: kv.SpecLayoutDeclaration | None, **changed) -> pb.RegisterRouteRequest:
    request = registration(0, group=group, sizes=SIZES, dsv41_spec_layout=declared, **changed)
    request.route.key.pp = pp
    return request


async def test_a_stage_that_declares_only_its_own_layers_is_refused_with_both_layouts(stub, group):
    await stub.RegisterRoute(stage(0, group, layout(0, 1)))
    before = await snapshot(stub, group)
    refusal = await refused(stub.RegisterRoute(stage(1, group, layout(2, 3))))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_MISMATCH")
    (mismatch,) = refusal.detail(errors_pb2.ContractMismatch).mismatches
    assert (mismatch.field, mismatch.held_by) == ("dsv41_spec_layout", key(0, pp=0))
    assert '"kv_layer_ids":[0,1]' in mismatch.standing_value
    assert '"kv_layer_ids":[2,3]' in mismatch.offered_value
    assert await snapshot(stub, group) == before
    await not_ready(stub, group)


async def test_stages_that_declare_the_layers_of_the_whole_model_make_the_group_ready(stub, group):
    for pp in range(2):
        answer = await stub.RegisterRoute(stage(pp, group, layout(0, 1, 2, 3)))
    assert answer.ready
    ready = await info(stub, group)
    assert ready.info.dsv41_spec_layout == layout(0, 1, 2, 3)

    # That is what a decode server compares itself with, whatever its own stages are.
    for pp in (1, 2):
        decode = pb.DecodeServer(
            page_size=64, sizes=pb.ParallelSizes(dp=1, cp=1, tp=1, pp=pp), dsv41_spec_layout=layout(0, 1, 2, 3)
        )
        fits = await stub.CheckCompatibility(pb.CheckCompatibilityRequest(group=group, decode_server=decode))
        assert (list(fits.incompatibilities), fits.ready) == ([], True)


async def test_a_stage_that_declares_nothing_keeps_the_group_from_being_ready(stub, group):
    await stub.RegisterRoute(stage(1, group, None))
    answer = await stub.RegisterRoute(stage(0, group, layout(0, 1, 2, 3)))
    assert (answer.registered, answer.ready) == (2, False)
    _, state = await not_ready(stub, group)
    assert list(state.undeclared_keys) == [key(0, pp=1)]
    assert (await stub.RegisterRoute(stage(1, group, layout(0, 1, 2, 3)))).ready
