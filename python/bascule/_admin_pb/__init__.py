"""The messages of `bascule.admin.v1`, our administrative service; used by the broker and by the client alike.

They are in the pool of the Liftbridge messages, which they refer to. `admin.binpb` is written by
`specs/generate_descriptors.py` from `specs/proto/bascule_admin_v1.proto`.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from bascule import _liftbridge_pb

__all__ = ["message"]

PACKAGE: Final = "bascule.admin.v1"


@cache
def _pool() -> DescriptorPool:
    pool = _liftbridge_pb.pool()
    document = FileDescriptorSet.FromString(files("bascule._admin_pb").joinpath("admin.binpb").read_bytes())
    for file in document.file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    """The class of the message `name`, e.g. `TrimPartitionRequest`.

    Raises:
        KeyError: there is none of that name.
    """
    return GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))
