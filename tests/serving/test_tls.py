"""Certificates over a real port: shown, asked for, changed under way."""

import asyncio
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interlock.bootstrap.v1.bootstrap_service_pb2_grpc import (
    BootstrapServiceServicer,
    add_BootstrapServiceServicer_to_server,
)
from interlock.serving import Server, ServerSettings
from interlock.serving.config import SettingsError
from interlock.serving.tls import BadCertificateError, TlsSettings
from interlock_cli.dev_certificates import write_dev_certificates
from serving.conftest import BOOTSTRAP

CLIENT = "spiffe://interlock.test/client"


def write(folder, **options):
    options = {
        "server_names": ["localhost", "127.0.0.1"],
        "client_name": CLIENT,
        "lifetime": timedelta(days=1),
    } | options
    return write_dev_certificates(folder, **options)


def settings_of(files, *, mutual=False):
    return TlsSettings(files.server_certificate, files.server_key, files.ca if mutual else None)


@pytest.fixture
async def serve_tls():
    servers = []

    async def start(tls):
        server = Server(ServerSettings(port=0), tls=tls)
        server.add(BOOTSTRAP, partial(add_BootstrapServiceServicer_to_server, BootstrapServiceServicer()))
        servers.append(server)
        return await server.start()

    yield start
    for server in servers:
        await server.stop(grace=0)


def connect(port, ca, certificate=None, key=None):
    read = [None if file is None else file.read_bytes() for file in (ca, key, certificate)]
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(*read), options)


async def serving(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)).status


async def test_a_client_that_trusts_the_ca_gets_an_answer_and_another_none(serve_tls, tmp_path):
    files, others = write(tmp_path / "a"), write(tmp_path / "b")
    port = await serve_tls(settings_of(files))
    async with connect(port, files.ca) as channel:
        assert await serving(channel) == health_pb2.HealthCheckResponse.SERVING
    async with connect(port, others.ca) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await serving(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_with_a_client_ca_lets_in_only_its_certificates(serve_tls, tmp_path):
    files, others = write(tmp_path / "a"), write(tmp_path / "b")
    port = await serve_tls(settings_of(files, mutual=True))
    async with connect(port, files.ca, files.client_certificate, files.client_key) as channel:
        assert await serving(channel) == health_pb2.HealthCheckResponse.SERVING
    for pair in ((), (others.client_certificate, others.client_key)):
        async with connect(port, files.ca, *pair) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await serving(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_new_connection_gets_the_new_certificate_and_an_old_one_lives_on(serve_tls, tmp_path, caplog):
    caplog.set_level("INFO")
    first = write(tmp_path / "live")
    old_ca = tmp_path / "old-ca.pem"
    shutil.copy(first.ca, old_ca)
    port = await serve_tls(settings_of(first))
    async with connect(port, old_ca) as old:
        assert await serving(old) == health_pb2.HealthCheckResponse.SERVING
        write(tmp_path / "live")
        async with connect(port, first.ca) as new:
            assert await serving(new) == health_pb2.HealthCheckResponse.SERVING
        assert await serving(old) == health_pb2.HealthCheckResponse.SERVING
    assert "certificates were read again" in caplog.text


async def test_a_change_that_cannot_be_used_leaves_the_old_certificate(serve_tls, tmp_path, caplog):
    files, others = write(tmp_path / "live"), write(tmp_path / "other")
    port = await serve_tls(settings_of(files))
    key = files.server_key.read_bytes()
    shutil.copy(others.server_key, files.server_key)
    for _ in range(2):
        async with connect(port, files.ca) as channel:
            assert await serving(channel) == health_pb2.HealthCheckResponse.SERVING
    assert caplog.text.count("cannot be used, the old ones stay") == 1
    files.server_key.write_bytes(key)
    async with connect(port, files.ca) as channel:
        assert await serving(channel) == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(("version", "accepted"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
async def test_nothing_older_than_tls_1_2_is_spoken(serve_tls, tmp_path, version, accepted):
    files = write(tmp_path)
    port = await serve_tls(settings_of(files))
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", files.ca, version, "-alpn", "h2"]
    command += ["-cipher", "DEFAULT:@SECLEVEL=0"]
    result = await asyncio.to_thread(subprocess.run, command, input=b"", capture_output=True, timeout=60, check=False)
    assert (b"BEGIN CERTIFICATE" in result.stdout) is accepted


def test_a_key_of_another_certificate_is_refused_at_the_start(tmp_path):
    files, others = write(tmp_path / "a"), write(tmp_path / "b")
    with pytest.raises(BadCertificateError, match=r"b/server\.key: this is not the private key of .*a/server\.pem"):
        Server(tls=TlsSettings(files.server_certificate, others.server_key))


@pytest.mark.parametrize(
    ("begin", "message"), [(-3, r"CN=localhost expired on "), (3, r"CN=localhost is valid only from ")]
)
def test_a_certificate_whose_time_it_is_not_is_refused_at_the_start(tmp_path, begin, message):
    files = write(tmp_path, now=datetime.now(UTC) + timedelta(days=begin))
    with pytest.raises(BadCertificateError, match=message):
        Server(tls=settings_of(files))


@pytest.mark.parametrize("name", ["server_certificate", "server_key", "ca"])
@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"no PEM", "PEM")])
def test_a_file_that_cannot_be_used_is_named(tmp_path, name, content, message):
    files = write(tmp_path)
    file = getattr(files, name)
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(BadCertificateError, match=message) as caught:
        Server(tls=settings_of(files, mutual=True))
    assert str(file) in str(caught.value)


def test_an_encrypted_key_is_refused_instead_of_asking_for_its_password(tmp_path):
    files = write(tmp_path)
    encrypt = ["openssl", "pkcs8", "-topk8", "-in", files.server_key, "-out", tmp_path / "sealed", "-passout", "pass:x"]
    subprocess.run(encrypt, check=True, capture_output=True)
    with pytest.raises(BadCertificateError, match="the private key is encrypted"):
        Server(tls=TlsSettings(files.server_certificate, tmp_path / "sealed"))


@pytest.mark.parametrize("given", [{"certificate_file": "a"}, {"key_file": "a"}, {"client_ca_file": "a"}])
def test_half_a_setting_is_refused(tmp_path, given):
    with pytest.raises(SettingsError, match=r"\[tls\]"):
        TlsSettings(**{name: tmp_path / file for name, file in given.items()})
