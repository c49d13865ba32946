"""Write the descriptors of specs/proto for the broker and the client; with --check only compare.

Needs grpcio-tools (a development dependency).
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "specs" / "proto"
TARGETS = {
    "liftbridge.proto": ROOT / "python/bascule/_liftbridge_pb/liftbridge.binpb",
    "bascule_admin_v1.proto": ROOT / "python/bascule/_admin_pb/admin.binpb",
}
"""Definition to file. A file has one definition, without those that it imports."""


def descriptors(definition: str) -> bytes:
    """The serialized FileDescriptorSet of one definition, without comments and positions."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "set.binpb"
        status = protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={out}", definition])
        if status:
            raise SystemExit(f"protoc ended with {status} on {definition}")
        return out.read_bytes()


def main() -> int:
    """Write or compare; returns the exit code."""
    stale = 0
    for definition, target in TARGETS.items():
        if "--check" not in sys.argv:
            target.write_bytes(descriptors(definition))
        elif not target.exists() or target.read_bytes() != descriptors(definition):
            sys.stderr.write(f"{target.relative_to(ROOT)} is not what specs/proto/{definition} gives: make fix\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
