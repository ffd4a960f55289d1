"""What a caller that shares memory does on its side, written against the proto alone."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from interlock.preprocess.v1 import preprocess_pb2 as pb

MIB = 1 << 20
SIZE = 16 * MIB


def new_file(folder: Path, name: str = "region", size: int = SIZE) -> Path:
    """A file of `size` bytes, which takes no memory yet."""
    path = folder / name
    path.touch(0o600)
    os.truncate(path, size)
    return path


@dataclass
class Registered:
    """A file that was registered, mapped on this side."""

    path: Path
    handle: str
    map: mmap.mmap

    def target(self, offset: int = 4096, size: int = 0) -> pb.RegionTarget:
        return pb.RegionTarget(handle=self.handle, offset=offset, size=size)

    def bytes(self, offset: int, size: int) -> bytes:
        return self.map[offset : offset + size]


async def registered(stub, folder: Path, name: str = "region", size: int = SIZE, **fields) -> Registered:
    """Make a file, register it, and find the handle in it."""
    path = new_file(folder, name, size)
    response = await stub.RegisterRegion(pb.RegisterRegionRequest(file_name=name, size=size, **fields))
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), size)
    assert mapped[: len(response.handle)] == response.handle.encode("ascii")
    return Registered(path, response.handle, mapped)


async def placed(stub, region: Registered, data: bytes, target: pb.RegionTarget) -> bytes:
    """Have one picture put there, and give its patches."""
    request = pb.PreprocessImageRequest(image_id="p", encoded=data, region=target)
    frames = [frame async for frame in stub.PreprocessImage(request, timeout=60)]
    return patches_there(region, target, frames)


def patches_there(region: Registered, target: pb.RegionTarget, frames: list[pb.PatchFrame]) -> bytes:
    """The patches of a picture that was answered so."""
    assert [frame.WhichOneof("frame") for frame in frames] == ["header", "trailer"]
    patches = region.bytes(target.offset, frames[0].header.total_bytes)
    assert google_crc32c.value(patches) == frames[1].trailer.crc32c
    return patches
