"""The frame of a value whose schema is in a registry.

| offset | size | type | meaning |
|---|---|---|---|
| 0 | 1 | byte | 0 |
| 1 | 4 | u32, big-endian | id of the schema |
| 5 | n | | Avro: the value. Protobuf: the message's index path, then the message |

The index path names a message of the `.proto` file: the number of its elements, then the position of each enclosing
message and of the message itself, each as a zigzag varint. The path [0] is written as a single 0.
"""

from typing import Final

from bascule.pipeline.decode.failures import RecordError

__all__ = ["HEADER_BYTES", "split_frame", "split_index_path"]

HEADER_BYTES: Final = 5
_MAGIC: Final = 0
_LONGEST_VARINT: Final = 5
_DEEPEST: Final = 32
"""Most elements of an index path."""


def split_frame(value: bytes) -> tuple[int, bytes]:
    """The schema id and the rest of a framed value.

    Raises:
        RecordError: `NotFramed`: fewer than 5 bytes, or the first is not 0.
    """
    if len(value) < HEADER_BYTES:
        raise RecordError("NotFramed", f"the value has {len(value)} bytes; a frame has at least {HEADER_BYTES}")
    if value[0] != _MAGIC:
        raise RecordError("NotFramed", f"the value begins with the byte {value[0]:#04x}; a frame begins with 0x00")
    return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]


def split_index_path(rest: bytes) -> tuple[tuple[int, ...], bytes]:
    """The index path of a Protobuf message, and its bytes.

    Raises:
        RecordError: `NotFramed`: the path is cut off or out of range.
    """
    count, position = _varint(rest, 0)
    if count == 0:
        return (0,), rest[position:]
    if not 0 < count <= _DEEPEST:
        raise RecordError("NotFramed", f"the message's index path has {count} elements; 1 to {_DEEPEST} are allowed")
    path: list[int] = []
    for _ in range(count):
        index, position = _varint(rest, position)
        if index < 0:
            raise RecordError("NotFramed", f"the message's index path has the element {index}")
        path.append(index)
    return tuple(path), rest[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    value = 0
    for number in range(_LONGEST_VARINT):
        if position >= len(data):
            raise RecordError("NotFramed", "the message's index path is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise RecordError("NotFramed", "the message's index path has a number of more than 5 bytes")
