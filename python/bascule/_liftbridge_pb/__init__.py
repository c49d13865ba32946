"""The Liftbridge messages, in a pool of their own; used by the broker's admin side and by the client alike.

A client library in the same process registers messages of the same names in the default pool, and two registrations of
one name clash, so ours never go there. `liftbridge.binpb` is written by `specs/generate_descriptors.py` from
`specs/proto/liftbridge.proto`.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

__all__ = ["DecodeError", "message", "methods", "number", "pool"]

PACKAGE: Final = "proto"
SERVICE: Final = "proto.API"


@cache
def pool() -> DescriptorPool:
    """The pool with Liftbridge's messages, and those of `bascule._admin_pb` once one was asked for."""
    made = DescriptorPool()
    document = FileDescriptorSet.FromString(files("bascule._liftbridge_pb").joinpath("liftbridge.binpb").read_bytes())
    for file in document.file:
        made.Add(file)
    return made


@cache
def message(name: str) -> Any:
    """The class of the message `name`, e.g. `CreateStreamRequest`.

    Raises:
        KeyError: there is none of that name.
    """
    return GetMessageClass(pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def number(enum: str, name: str) -> int:
    """The number of a value of an enum, e.g. `number("AckPolicy", "ALL")`.

    Raises:
        KeyError: there is no such enum or value.
    """
    return int(pool().FindEnumTypeByName(f"{PACKAGE}.{enum}").values_by_name[name].number)


def methods() -> dict[str, tuple[str, str]]:
    """Every method of the service, with the names of its request and response messages."""
    service = pool().FindServiceByName(SERVICE)
    return {item.name: (item.input_type.name, item.output_type.name) for item in service.methods}
