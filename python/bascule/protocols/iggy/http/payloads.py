"""Payloads of commands, as a client of the binary protocol sends them. Numbers are those that the client means."""

import struct
from collections.abc import Mapping
from dataclasses import fields

from bascule.protocols.iggy.fields import MAX_NAME_BYTES, MalformedError, identifier, long_text
from bascule.protocols.iggy.http import bodies
from bascule.protocols.iggy.permissions import Permissions as Flags
from bascule.protocols.iggy.permissions import StreamFlags, TopicFlags, encode_permissions
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["number", "options", "path", "rights", "status", "text", "topic_options", "topic_settings"]

_TEXT_KIND = 2
_U32 = (1 << 32) - 1


def text(value: str, flaw: IggyStatus) -> bytes:
    """A text behind a length of one byte.

    Raises:
        IggyError: `flaw`: it has more than 255 bytes, or cannot be UTF-8.
    """
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise IggyError(flaw, "the text is not valid Unicode") from error
    if len(encoded) > MAX_NAME_BYTES:
        raise IggyError(flaw, f"a text of {len(encoded)} bytes is longer than {MAX_NAME_BYTES}")
    return bytes([len(encoded)]) + encoded


def path(*names: str) -> bytes:
    """Users, streams, topics and groups: all digits are a number, anything else is a name.

    Raises:
        MalformedError: a number above 2^32 - 1, an empty name, or one of more than 255 bytes.
    """
    return b"".join(map(_identifier, names))


def number(text: str) -> bytes:
    """A number of a path, as 4 bytes.

    Raises:
        MalformedError: it is not one below 2^32.
    """
    return struct.pack("<I", _u32(text))


def _u32(text: str) -> int:
    if not _is_u32(text):
        raise MalformedError(f"{text[:40]!r} is not a number below 2^32")
    return int(text)


def _is_u32(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _U32


def _identifier(name: str) -> bytes:
    if name.isascii() and name.isdigit():
        return identifier(_u32(name))
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise MalformedError(f"{name[:40]!r} is not a name of 1 to {MAX_NAME_BYTES} bytes")
    return identifier(name)


def status(name: str) -> int:
    """Of a user."""
    return 1 if name == "active" else 2


def rights(permissions: bodies.Permissions | None) -> bytes:
    """A flag, and the rights behind their length.

    Raises:
        MalformedError: a stream or topic is not named by a number.
    """
    if permissions is None:
        return b"\0"
    streams, topics = dict[int, StreamFlags](), dict[tuple[int, int], TopicFlags]()
    for name, stream in (permissions.streams or {}).items():
        number = _number(name)
        streams[number] = StreamFlags(*(getattr(stream, each.name) for each in fields(StreamFlags)))
        for topic, flags in (stream.topics or {}).items():
            topics[number, _number(topic)] = flags
    block = encode_permissions(Flags(permissions.everywhere, streams, topics))
    return b"\1" + struct.pack("<I", len(block)) + block


def _number(name: str) -> int:
    if not _is_u32(name):
        raise MalformedError(f"rights name {name[:40]!r}: streams and topics of rights are numbers")
    return int(name)


def topic_settings(topic: bodies.UpdateTopic) -> bytes:
    """Of clients before v2."""
    fixed = struct.pack(
        "<BQQB",
        2 if topic.compression_algorithm == "gzip" else 1,
        topic.message_expiry or 0,
        topic.max_topic_size or 0,
        topic.replication_factor or 0,
    )
    return fixed + text(topic.name, IggyStatus.INVALID_TOPIC_NAME)


def topic_options(topic: bodies.UpdateTopic) -> bytes:
    """Of clients of v2: fields of the body are options too; 0 leaves the decision to the broker."""
    given = {
        "compression_algorithm": topic.compression_algorithm,
        "message_expiry": topic.message_expiry,
        "max_topic_size": topic.max_topic_size,
    }
    fields = {key: str(value) for key, value in given.items() if value}
    return options(fields) + options(topic.options or {})


def options(pairs: Mapping[str, str]) -> bytes:
    """A block of options whose values are texts."""
    return b"".join(_field(key) + _field(value) for key, value in pairs.items())


def _field(value: str) -> bytes:
    return bytes([_TEXT_KIND]) + long_text(value)
