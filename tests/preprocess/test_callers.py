"""What belongs to one token is not another's."""

import grpc
import pytest

from interlock.preprocess.v1 import preprocess_pb2 as pb
from interlock.preprocess.v1.preprocess_service_pb2_grpc import PreprocessServiceStub
from interlock.serving import Server, ServerSettings
from interlock.serving.access import AccessSettings
from interlock.serving.credentials import token_sha256
from interlock_preprocess.serve import add_preprocess
from interlock_preprocess.settings import PreprocessSettings


@pytest.fixture
async def stub(tmp_path):
    credentials = tmp_path / "credentials.toml"
    entry = '[[token]]\nid = "{}"\nsha256 = "{}"\nroles = ["preprocess"]\n'
    credentials.write_text("".join(entry.format(name, token_sha256(name)) for name in ("a", "b")))
    (tmp_path / "shared").mkdir()
    server = Server(ServerSettings(port=0), AccessSettings(credentials_file=credentials))
    service = add_preprocess(server, PreprocessSettings(shared_memory_folder=tmp_path / "shared"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await server.start()}") as channel:
        yield PreprocessServiceStub(channel)
    await server.stop(grace=0)
    await service.close()


async def test_a_region_is_seen_and_forgotten_by_its_own_token_alone(stub, tmp_path):
    def by(token):
        return {"metadata": (("authorization", f"Bearer {token}"),), "timeout": 20}

    (tmp_path / "shared" / "mine").write_bytes(bytes(8192))
    registered = await stub.RegisterRegion(pb.RegisterRegionRequest(file_name="mine", size=8192), **by("a"))
    unregister = pb.UnregisterRegionRequest(handle=registered.handle)

    async def names(token):
        return [region.file_name for region in (await stub.ListRegions(pb.ListRegionsRequest(), **by(token))).regions]

    assert await names("b") == []
    assert not (await stub.UnregisterRegion(unregister, **by("b"))).removed
    assert await names("a") == ["mine"]
    assert (await stub.UnregisterRegion(unregister, **by("a"))).removed
