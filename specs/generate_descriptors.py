"""Write the descriptors of specs/proto/liftbridge.proto for the broker and the client.

Run `python specs/generate_descriptors.py` after changing the definition; needs grpcio-tools (a development dependency).
A test compares the file with a fresh one.
"""

import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "specs" / "proto" / "liftbridge.proto"
TARGET = ROOT / "python" / "bascule" / "_liftbridge_pb" / "liftbridge.binpb"


def descriptors() -> bytes:
    """The serialized FileDescriptorSet of the definition, without comments and positions."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "set.binpb"
        status = protoc.main(["protoc", f"-I{SOURCE.parent}", f"--descriptor_set_out={out}", SOURCE.name])
        if status:
            raise SystemExit(f"protoc ended with {status}")
        return out.read_bytes()


if __name__ == "__main__":
    TARGET.write_bytes(descriptors())
