"""Clients with tokens and certificates, against a server that asks for them."""

import asyncio

import pytest

from interlock.client import (
    AccessError,
    AsyncBootstrapClient,
    BootstrapClient,
    Credentials,
    CredentialsError,
    PreprocessClient,
)
from interlock.serving import Server, ServerSettings
from interlock.serving.access import AccessSettings
from interlock.serving.credentials import token_sha256
from interlock.serving.tls import TlsSettings
from interlock.topology import Instance
from interlock_bootstrap.serve import add_bootstrap
from interlock_bootstrap.settings import BootstrapSettings
from interlock_preprocess.serve import add_preprocess
from serving.test_tls import CLIENT, write
from topology.examples import NOW, route

TOKENS = {"engine": "register", "router": "read", "frontend": "preprocess"}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "credentials.toml"
    entries = (
        f'[[token]]\nid = "{secret}"\nsha256 = "{token_sha256(secret)}"\nroles = ["{role}"]\n'
        for secret, role in TOKENS.items()
    )
    file.write_text("".join(entries) + f'[[identity]]\nname = "{CLIENT}"\nroles = ["read"]\n')
    return file


@pytest.fixture
async def serve_known(file):
    closing = []

    async def start(tls=None):
        server = Server(ServerSettings(port=0), AccessSettings(credentials_file=file), tls)
        add_bootstrap(server, BootstrapSettings(store="memory"))
        pictures = add_preprocess(server)
        closing.append((server, pictures))
        return f"127.0.0.1:{await server.start()}"

    yield start
    for server, pictures in closing:
        await server.stop(0)
        await pictures.close()


async def test_every_kind_of_call_carries_the_token(serve_known):
    address = await serve_known()
    launch = Instance("launch", NOW)
    client = AsyncBootstrapClient(address, credentials=Credentials(token="engine"))
    async with client, client.registration(route(0), launch):
        watch = client.watch_topology()
        assert (await anext(watch)).state.registered == 1
        await watch.aclose()

    def synchronous():
        client = BootstrapClient(address, credentials=Credentials(token="engine"))
        with client, client.registration(route(1, incarnation=7), launch):
            return [state.registered for state in client.list_groups()]

    assert await asyncio.to_thread(synchronous) == [1]

    def pictures():
        with PreprocessClient(address, credentials=Credentials(token="frontend")) as client:
            return client.list_profiles().kernel

    assert await asyncio.to_thread(pictures)


async def test_a_call_without_the_role_is_an_access_error(serve_known):
    address = await serve_known()
    async with AsyncBootstrapClient(address, credentials=Credentials(token="router")) as client:
        with pytest.raises(AccessError) as caught:
            await client.register_route(route(0), Instance("launch", NOW))
    assert caught.value.reason == "NOT_PERMITTED"
    async with AsyncBootstrapClient(address) as client:
        with pytest.raises(AccessError) as caught:
            await anext(client.watch_topology())
    assert caught.value.reason == "UNAUTHENTICATED"


async def test_the_tokens_file_is_read_for_each_call(serve_known, tmp_path):
    address = await serve_known()
    token = tmp_path / "token"
    token.write_text("wrong\n")
    async with AsyncBootstrapClient(address, credentials=Credentials(token_file=token)) as client:
        with pytest.raises(AccessError):
            _ = [state async for state in client.list_groups()]
        token.write_text("router\n")
        assert [state async for state in client.list_groups()] == []


async def test_a_client_certificate_is_shown(serve_known, tmp_path):
    files = write(tmp_path / "certs")
    address = await serve_known(TlsSettings(files.server_certificate, files.server_key, files.ca))
    credentials = Credentials(ca_file=files.ca, certificate_file=files.client_certificate, key_file=files.client_key)
    async with AsyncBootstrapClient(address, credentials=credentials) as client:
        assert [state async for state in client.list_groups()] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"certificate_file": "a"}, "go together"),
        ({"token": "a", "token_file": "b"}, "both given"),
        ({"token_file": "none"}, "No such file"),
        ({"ca_file": "none"}, "No such file"),
        ({"token": "two words"}, "one word of printable ASCII"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_at_once(tmp_path, given, message):
    with pytest.raises(CredentialsError, match=message):
        AsyncBootstrapClient(
            "127.0.0.1:1",
            credentials=Credentials(**{k: tmp_path / v if k.endswith("file") else v for k, v in given.items()}),
        )


def test_the_environment_names_them(tmp_path):
    (tmp_path / "token").write_text("t")
    environment = {"INTERLOCK_TOKEN_FILE": str(tmp_path / "token"), "INTERLOCK_TLS": "true", "INTERLOCK_CA_FILE": ""}
    assert Credentials.from_environment(environment) == Credentials(tls=True, token_file=tmp_path / "token")
    assert Credentials.from_environment({}) == Credentials()
