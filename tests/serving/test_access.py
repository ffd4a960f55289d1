"""Who is let in, over a real port, and what becomes of running calls when that changes."""
# ruff: noqa: N802 - a servicer's methods have the names of the proto

import asyncio
from functools import partial

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from interlock.bootstrap.v1 import bootstrap_pb2, bootstrap_service_pb2
from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    BootstrapServiceStub,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import Server, ServerSettings
from interlock.serving.access import AccessSettings, Rule, current_caller
from interlock.serving.credentials import CredentialsError, Role, token_sha256
from interlock.serving.server import OpenToAllError
from interlock.serving.tls import TlsSettings
from serving.conftest import BOOTSTRAP
from serving.test_tls import CLIENT, connect, write

METHODS = [method.name for method in bootstrap_service_pb2.DESCRIPTOR.services_by_name["BootstrapService"].methods]


class Asked(BootstrapServiceServicer):
    """Answers who the caller is; a watch goes on for good."""

    async def ListGroups(self, request, context):
        return bootstrap_pb2.ListGroupsResponse(next_page_token=current_caller().id)

    async def WatchTopology(self, request, context):
        yield bootstrap_pb2.WatchTopologyResponse()
        await asyncio.Event().wait()

    async def KeepAlive(self, request_iterator, context):
        async for _ in request_iterator:
            yield bootstrap_pb2.KeepAliveResponse()


def group_of(request):
    return [request.group]


def groups_of_leases(request):
    return [lease.group for lease in request.leases]


RULES = dict.fromkeys(METHODS, Rule(frozenset({Role.READ}))) | {
    "WatchTopology": Rule(frozenset({Role.READ}), group_of),
    "KeepAlive": Rule(frozenset({Role.READ}), groups_of_leases),
    "ForceEpoch": Rule(frozenset({Role.ADMIN})),
}


def token_entry(secret, *roles, groups=None, expires=None):
    lines = ["[[token]]", f'id = "{secret}"', f'sha256 = "{token_sha256(secret)}"', f"roles = {list(map(str, roles))}"]
    lines += [f"groups = {groups}"] if groups else []
    lines += [f"expires = {expires}"] if expires else []
    return "\n".join(lines) + "\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "credentials.toml"


@pytest.fixture
async def serve_to_known(file):
    """Serves to whom a credentials file knows; gives a stub, with TLS if there are certificates."""
    servers, channels = [], []

    async def start(text, certificates=None, **pair):
        file.write_text(text)
        tls = certificates and TlsSettings(
            certificates.server_certificate, certificates.server_key, certificates.ca if pair else None
        )
        server = Server(ServerSettings(port=0), AccessSettings(credentials_file=file), tls)
        server.add(BOOTSTRAP, partial(add_BootstrapServiceServicer_to_server, Asked()), RULES)
        servers.append(server)
        port = await server.start()
        if certificates:
            channel = connect(port, certificates.ca, **pair)
        else:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
        channels.append(channel)
        return BootstrapServiceStub(channel)

    yield start
    for channel in channels:
        await channel.close()
    for server in servers:
        await server.stop(grace=0)


def bearing(token):
    return {"metadata": (("authorization", f"Bearer {token}"),), "timeout": 20}


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return caught.value.code(), info.reason, status.message


LIST = bootstrap_pb2.ListGroupsRequest()


async def test_a_known_token_is_let_in_and_the_servicer_knows_whose_it_is(serve_to_known):
    stub = await serve_to_known(token_entry("router", Role.READ))
    assert (await stub.ListGroups(LIST, **bearing("router"))).next_page_token == "router"


BAD_HEADER = "the header `authorization` must be `Bearer TOKEN`, with a token of at most 512 characters"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "this server lets in whom it knows: send the header `authorization: Bearer TOKEN`"),
        ("Bearer other", "the token is unknown or has expired"),
        ("Bearer gone", "the token is unknown or has expired"),
        ("Basic cm91dGVy", BAD_HEADER),
        ("Bearer ", BAD_HEADER),
        (
            "Bearer " + "x" * 513,
            "the header `authorization` must be `Bearer TOKEN`, with a token of at most 512 characters",
        ),
    ],
)
async def test_whom_nobody_knows_is_told_so(serve_to_known, header, message):
    gone = token_entry("gone", Role.ADMIN, expires="2020-01-01T00:00:00Z")
    stub = await serve_to_known(token_entry("router", Role.READ) + gone)
    metadata = (("authorization", header),) if header is not None else ()
    answer = await refusal(stub.ListGroups(LIST, metadata=metadata, timeout=20))
    assert answer == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", message)


async def test_a_caller_without_the_role_is_told_what_the_method_needs(serve_to_known):
    stub = await serve_to_known(token_entry("router", Role.READ))
    code, reason, message = await refusal(stub.ForceEpoch(bootstrap_pb2.ForceEpochRequest(), **bearing("router")))
    assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "NOT_PERMITTED")
    assert message == "'router' may read; the method needs admin"


async def test_a_group_that_is_not_the_callers_is_refused_in_single_requests_and_in_streams(serve_to_known):
    stub = await serve_to_known(token_entry("router", Role.READ, groups=["mine-*"]))
    watch = stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group="mine-1"), **bearing("router"))
    assert await watch.read() == bootstrap_pb2.WatchTopologyResponse()
    watch.cancel()
    other = stub.WatchTopology(bootstrap_pb2.WatchTopologyRequest(group="yours"), **bearing("router"))
    refused = (
        grpc.StatusCode.PERMISSION_DENIED,
        "NOT_PERMITTED",
        "'router' has nothing to do with group 'yours'; its groups are mine-*",
    )
    assert await refusal(other.read()) == refused

    def renewing(group):
        return bootstrap_pb2.KeepAliveRequest(leases=[bootstrap_pb2.LeaseRef(group=group)])

    stream = stub.KeepAlive(**bearing("router"))
    await stream.write(renewing("mine-2"))
    assert await stream.read() == bootstrap_pb2.KeepAliveResponse()
    await stream.write(renewing("yours"))
    assert await refusal(stream.read()) == refused


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (token_entry("other", Role.READ), "UNAUTHENTICATED"),
        (token_entry("router", Role.PREPROCESS), "NOT_PERMITTED"),
        (token_entry("router", Role.READ, groups=["b"]), "NOT_PERMITTED"),
    ],
    ids=["taken away", "role lost", "group lost"],
)
async def test_a_running_watch_ends_when_its_token_is_not_good_for_it_any_more(serve_to_known, file, after, reason):
    stub = await serve_to_known(token_entry("router", Role.READ) + token_entry("stays", Role.READ))
    request = bootstrap_pb2.WatchTopologyRequest(group="a")
    ending, staying = (stub.WatchTopology(request, metadata=bearing(who)["metadata"]) for who in ("router", "stays"))
    for watch in (ending, staying):
        await watch.read()
    file.write_text(after + token_entry("stays", Role.READ))
    async with asyncio.timeout(20):
        assert (await refusal(ending.read()))[1] == reason
    assert not staying.done()
    staying.cancel()


async def test_a_file_that_cannot_be_used_any_more_changes_nothing(serve_to_known, file, caplog):
    stub = await serve_to_known(token_entry("router", Role.READ))
    file.write_text("no TOML")
    async with asyncio.timeout(20):
        while "cannot be used, the old ones stay" not in caplog.text:  # noqa: ASYNC110 - a line of the log has no event
            await asyncio.sleep(0.01)
    assert (await stub.ListGroups(LIST, **bearing("router"))).next_page_token == "router"


async def test_a_client_certificate_is_as_good_as_a_token(serve_to_known, tmp_path):
    files = write(tmp_path / "certs")
    stub = await serve_to_known(
        f'[[identity]]\nname = "{CLIENT}"\nroles = ["read"]\n',
        files,
        certificate=files.client_certificate,
        key=files.client_key,
    )
    assert (await stub.ListGroups(LIST, timeout=20)).next_page_token == CLIENT
    assert (await refusal(stub.ForceEpoch(bootstrap_pb2.ForceEpochRequest(), timeout=20)))[1] == "NOT_PERMITTED"
    # A token that is sent must be good, whatever the certificate says.
    assert (await refusal(stub.ListGroups(LIST, **bearing("wrong"))))[1] == "UNAUTHENTICATED"


async def test_a_certificate_that_nobody_knows_is_named(serve_to_known, tmp_path):
    files = write(tmp_path / "certs")
    stub = await serve_to_known("", files, certificate=files.client_certificate, key=files.client_key)
    assert (await refusal(stub.ListGroups(LIST, timeout=20)))[2] == (
        f"no name of the client's certificate is known here: {CLIENT}, {CLIENT}"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "203.0.113.7"])
def test_an_address_that_others_reach_needs_credentials_or_an_open_word(host, file, caplog):
    with pytest.raises(OpenToAllError, match=r"set --credentials-file, or listen on 127\.0\.0\.1, or say --insecure"):
        Server(ServerSettings(host=host))
    Server(ServerSettings(host=host), AccessSettings(insecure=True))
    assert "INSECURE: everyone who reaches" in caplog.text
    file.write_text(token_entry("router", Role.READ))
    Server(ServerSettings(host=host), AccessSettings(credentials_file=file))
    assert "tokens will cross the network as plain text" in caplog.text


def test_credentials_that_cannot_be_used_are_refused_at_the_start(file):
    file.write_text("[[token]]")
    with pytest.raises(CredentialsError, match="sha256 must be"):
        Server(access=AccessSettings(credentials_file=file))


def test_a_method_without_a_rule_and_a_rule_without_a_method_are_refused():
    rules = {**RULES, "Typo": RULES["ForceEpoch"]}
    del rules["ListGroups"]
    with pytest.raises(LookupError, match=r"\['ListGroups', 'Typo'\] are not in both"):
        Server().add(BOOTSTRAP, lambda _: None, rules)


async def test_a_service_without_rules_is_for_admins(file):
    file.write_text(token_entry("router", Role.READ) + token_entry("boss", Role.ADMIN))
    server = Server(ServerSettings(port=0), AccessSettings(credentials_file=file))
    server.add(BOOTSTRAP, partial(add_BootstrapServiceServicer_to_server, Asked()))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
            stub = BootstrapServiceStub(channel)
            assert (await refusal(stub.ListGroups(LIST, **bearing("router"))))[1] == "NOT_PERMITTED"
            assert (await stub.ListGroups(LIST, **bearing("boss"))).next_page_token == "boss"
    finally:
        await server.stop(grace=0)
