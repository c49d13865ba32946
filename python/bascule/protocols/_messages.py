"""The Liftbridge messages, in a pool of their own.

A client library in the same process registers messages of the same names in the default pool; two registrations of one
name clash, so ours never go there. The descriptors are written by `specs/generate_proto.py` from
`specs/proto/liftbridge.proto`.
"""

from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "proto"
SERVICE = "proto.API"


def _load() -> DescriptorPool:
    pool = DescriptorPool()
    document = FileDescriptorSet.FromString(files("bascule.protocols").joinpath("liftbridge.binpb").read_bytes())
    for file in document.file:
        pool.Add(file)
    return pool


_POOL = _load()


def message(name: str) -> Any:
    """The class of the message `name`, e.g. `CreateStreamRequest`."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def methods() -> dict[str, tuple[str, str]]:
    """Every method of the service, with the names of its request and response messages."""
    service = _POOL.FindServiceByName(SERVICE)
    return {item.name: (item.input_type.name, item.output_type.name) for item in service.methods}


__all__ = ["DecodeError", "message", "methods"]
