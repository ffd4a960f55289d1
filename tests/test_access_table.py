"""The table in docs/security.md is that of the code, and a real call is made for each of its cells."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bootstrap.calls import registration
from interlock.bootstrap.v1 import bootstrap_pb2 as bootstrap
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import BootstrapServiceStub
from interlock.preprocess.v1 import preprocess_pb2 as preprocess
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.serving import Server, ServerSettings
from interlock.serving.access import AccessSettings
from interlock.serving.credentials import Role, token_sha256
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess.serve import add_preprocess

REPOSITORY = Path(__file__).parent.parent

READ, REGISTER, ADMIN, PREPROCESS = Role
GROUPS = {"mine": True, "yours": False}

CALLS = {
    # method: the request for a group, and who may make it
    "Bootstrap.RegisterRoute": (lambda group: bootstrap.RegisterRouteRequest(group=group), {REGISTER, ADMIN}),
    "Bootstrap.DeregisterRoute": (lambda group: bootstrap.DeregisterRouteRequest(group=group), {REGISTER, ADMIN}),
    "Bootstrap.KeepAlive": (
        lambda group: iter([bootstrap.KeepAliveRequest(leases=[bootstrap.LeaseRef(group=group)])]),
        {REGISTER, ADMIN},
    ),
    "Bootstrap.GetPrefillServerInfo": (
        lambda group: bootstrap.GetPrefillServerInfoRequest(group=group),
        {READ, REGISTER, ADMIN},
    ),
    "Bootstrap.GetRankInfo": (lambda group: bootstrap.GetRankInfoRequest(group=group), {READ, REGISTER, ADMIN}),
    "Bootstrap.ListGroups": (None, {READ, REGISTER, ADMIN}),
    "Bootstrap.WatchTopology": (lambda group: bootstrap.WatchTopologyRequest(group=group), {READ, REGISTER, ADMIN}),
    "Bootstrap.CheckCompatibility": (
        lambda group: bootstrap.CheckCompatibilityRequest(group=group),
        {READ, REGISTER, ADMIN},
    ),
    "Bootstrap.ForceEpoch": (lambda group: bootstrap.ForceEpochRequest(group=group), {ADMIN}),
    "Bootstrap.RegisterDpRanks": (lambda group: bootstrap.RegisterDpRanksRequest(group=group), {REGISTER, ADMIN}),
    "Bootstrap.QueryDpRanks": (lambda group: bootstrap.QueryDpRanksRequest(group=group), {READ, REGISTER, ADMIN}),
    "Bootstrap.WaitDpRanks": (lambda group: bootstrap.WaitDpRanksRequest(group=group), {READ, REGISTER, ADMIN}),
    "Preprocess.PlanImages": (lambda _: preprocess.PlanImagesRequest(), {ADMIN, PREPROCESS}),
    "Preprocess.PreprocessImage": (lambda _: preprocess.PreprocessImageRequest(), {ADMIN, PREPROCESS}),
    "Preprocess.PreprocessImages": (lambda _: iter([]), {ADMIN, PREPROCESS}),
    "Preprocess.RegisterRegion": (lambda _: preprocess.RegisterRegionRequest(), {ADMIN, PREPROCESS}),
    "Preprocess.UnregisterRegion": (lambda _: preprocess.UnregisterRegionRequest(), {ADMIN, PREPROCESS}),
    "Preprocess.ListRegions": (lambda _: preprocess.ListRegionsRequest(), {ADMIN, PREPROCESS}),
    "Preprocess.ListProfiles": (lambda _: preprocess.ListProfilesRequest(), {ADMIN, PREPROCESS}),
    "ServerReflection": (
        lambda _: iter([reflection_pb2.ServerReflectionRequest(list_services="")]),
        {READ, REGISTER, ADMIN, PREPROCESS},
    ),
}
CALLERS = [None, *Role]


def test_the_page_has_the_table_of_the_code():
    made = subprocess.run([sys.executable, "scripts/access_table.py"], cwd=REPOSITORY, capture_output=True, text=True)
    assert made.stdout in (REPOSITORY / "docs/security.md").read_text()


def test_every_line_of_the_table_is_tried():
    page = (REPOSITORY / "docs/security.md").read_text()
    lines = page.partition("| method |")[2].partition("<!--")[0].splitlines()[2:]
    assert {line.split("|")[1].strip() for line in lines} == {*CALLS, "Health"}


@pytest.fixture(scope="module")
async def channel(tmp_path_factory):
    file = tmp_path_factory.mktemp("access") / "credentials.toml"
    entries = (
        f'[[token]]\nid = "{role}"\nsha256 = "{token_sha256(role)}"\nroles = ["{role}"]\ngroups = ["mine"]\n'
        for role in Role
    )
    everything = f'[[token]]\nid = "everything"\nsha256 = "{token_sha256("everything")}"\nroles = ["admin"]\n'
    file.write_text("".join(entries) + everything)
    server = Server(ServerSettings(port=0), AccessSettings(credentials_file=file))
    add_bootstrap(server, BootstrapSettings(store="memory"))
    pictures = add_preprocess(server)
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    await server.stop(grace=0)
    await pictures.close()


def method_of(channel, name):
    if name == "ServerReflection":
        return reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    service, method = name.split(".")
    stub = BootstrapServiceStub(channel) if service == "Bootstrap" else PreprocessServiceStub(channel)
    return getattr(stub, method)


def headers(role):
    return () if role is None else (("authorization", f"Bearer {role}"),)


async def code_of(method, request, role):
    """How a call was answered; OK also where it goes on."""
    call = method(request, metadata=headers(role), timeout=20)
    try:
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("role", CALLERS, ids=["nobody", *Role])
@pytest.mark.parametrize("name", [name for name, (request, _) in CALLS.items() if request is not None])
async def test_a_method_is_for_its_roles_and_for_the_callers_groups(channel, name, role):
    request, roles = CALLS[name]
    for group, own in GROUPS.items():
        code = await code_of(method_of(channel, name), request(group), role)
        if role is None:
            assert code is grpc.StatusCode.UNAUTHENTICATED
        elif role not in roles or (name.startswith("Bootstrap") and not own):
            assert code is grpc.StatusCode.PERMISSION_DENIED
        else:
            assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


@pytest.mark.parametrize("role", CALLERS, ids=["nobody", *Role])
async def test_a_list_of_groups_is_for_its_roles(channel, role):
    code = await code_of(BootstrapServiceStub(channel).ListGroups, bootstrap.ListGroupsRequest(), role)
    allowed = {READ: "OK", REGISTER: "OK", ADMIN: "OK", PREPROCESS: "PERMISSION_DENIED", None: "UNAUTHENTICATED"}
    assert code.name == allowed[role]


async def test_a_list_of_groups_shows_those_of_the_caller_page_by_page(channel):
    stub = BootstrapServiceStub(channel)
    for group in ("mine", "other", "yours"):
        request = registration(group=group)
        await stub.RegisterRoute(request, metadata=headers("everything"), timeout=20)

    async def listed(role, page_size):
        token, groups = "", []
        while True:
            request = bootstrap.ListGroupsRequest(page_size=page_size, page_token=token)
            page = await stub.ListGroups(request, metadata=headers(role), timeout=20)
            groups += [state.group for state in page.groups]
            if not (token := page.next_page_token):
                return groups

    for page_size in (1, 100):
        assert await listed("everything", page_size) == ["mine", "other", "yours"]
        assert await listed(READ, page_size) == ["mine"]


@pytest.mark.parametrize(("role", "method"), [*product(CALLERS, ["Check", "Watch"])])
async def test_health_is_for_everyone(channel, role, method):
    stub = health_pb2_grpc.HealthStub(channel)
    assert await code_of(getattr(stub, method), health_pb2.HealthCheckRequest(), role) is grpc.StatusCode.OK
