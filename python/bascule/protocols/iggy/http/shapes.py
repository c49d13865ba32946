"""JSON of replies, out of payloads of the binary protocol. `is_v2`: of a client of v2, whose replies have options."""

import struct
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from bascule.protocols.iggy.fields import Reader
from bascule.protocols.iggy.permissions import Permissions, read_permissions

__all__ = [
    "cluster",
    "group",
    "options",
    "stats",
    "stream",
    "streams",
    "token",
    "tokens",
    "topic",
    "topics",
    "user",
    "users",
]

Shape: TypeAlias = dict[str, Any]

_TEXT, _BOOL = 2, 3
_KINDS: Final = {2: "string", 3: "bool", 11: "uint32", 12: "uint64"}
_STATUSES: Final = {1: "active", 2: "inactive"}
_COMPRESSIONS: Final = {1: "none", 2: "gzip"}
_ROLES: Final = {0: "leader", 1: "follower"}
_NODE_STATUSES: Final = {0: "healthy", 1: "starting", 2: "stopping", 3: "unreachable", 4: "maintenance"}


def streams(payload: bytes, *, is_v2: bool) -> list[Shape]:
    """GET_STREAMS."""
    reader, found = Reader(payload), list[Shape]()
    while not reader.is_at_end:
        found.append(_stream(reader, is_v2=is_v2))
    return found


def stream(payload: bytes, *, is_v2: bool) -> Shape:
    """GET_STREAM, CREATE_STREAM: with its topics."""
    reader = Reader(payload)
    shown, found = _stream(reader, is_v2=is_v2), list[Shape]()
    while not reader.is_at_end:
        found.append(_topic(reader, is_v2=is_v2))
    return shown | {"topics": found}


def topics(payload: bytes, *, is_v2: bool) -> list[Shape]:
    """GET_TOPICS."""
    reader, found = Reader(payload), list[Shape]()
    if is_v2:
        reader.u32("the number of topics")
    while not reader.is_at_end:
        found.append(_topic(reader, is_v2=is_v2))
    return found


def topic(payload: bytes, *, is_v2: bool) -> Shape:
    """GET_TOPIC, CREATE_TOPIC: with its partitions."""
    reader = Reader(payload)
    shown, partitions = _topic(reader, is_v2=is_v2), list[Shape]()
    names = ("id", "created_at", "segments_count", "current_offset", "size", "messages_count")
    while not reader.is_at_end:
        values = struct.unpack("<IQIQQQ", reader.take(40, "a partition"))
        partitions.append(dict(zip(names, values, strict=True)))
    return shown | {"partitions": partitions}


def _stream(reader: Reader, *, is_v2: bool) -> Shape:
    number, created_at, count, size, messages = struct.unpack("<IQIQQ", reader.take(32, "a stream"))
    shown: Shape = {
        "id": number,
        "created_at": created_at,
        "name": reader.short_text("a stream's name"),
        "size": size,
        "messages_count": messages,
        "topics_count": count,
    }
    return shown | {"options": _pairs(reader)} if is_v2 else shown


def _topic(reader: Reader, *, is_v2: bool) -> Shape:
    number, created_at, partitions, expiry, compression, max_size = struct.unpack("<IQIQBQ", reader.take(33, "a topic"))
    replication = None if is_v2 else reader.u8("the replication factor")
    size, messages = struct.unpack("<QQ", reader.take(16, "a topic"))
    shown: Shape = {
        "id": number,
        "created_at": created_at,
        "name": reader.short_text("a topic's name"),
        "size": size,
        "message_expiry": expiry,
        "compression_algorithm": _COMPRESSIONS[compression],
        "max_topic_size": max_size,
        "messages_count": messages,
        "partitions_count": partitions,
    }
    if not is_v2:
        return shown | {"replication_factor": replication}
    explicit, derived = _pairs(reader), _pairs(reader)
    values = {key: {"value": value, "explicit": True} for key, value in explicit.items()}
    values |= {key: {"value": value, "explicit": False} for key, value in derived.items()}
    return shown | {"options": dict(sorted(values.items()))}


def _pairs(reader: Reader) -> dict[str, str]:
    """A block of options behind its length; values as texts."""
    block, found = Reader(reader.take(reader.u32("the options"), "the options")), dict[str, str]()
    while not block.is_at_end:
        block.u8("the kind of a key")
        key = block.long_text("a key")
        found[key] = _value(block.u8("the kind of a value"), block.take(block.u32("a value"), "a value"))
    return found


def _value(kind: int, value: bytes) -> str:
    if kind == _TEXT:
        return value.decode()
    number = int.from_bytes(value, "little")
    return str(bool(number)).lower() if kind == _BOOL else str(number)


def users(payload: bytes, *, is_v2: bool) -> list[Shape]:
    """GET_USERS."""
    reader, found = Reader(payload), list[Shape]()
    while not reader.is_at_end:
        found.append(_user(reader, is_v2=is_v2))
    return found


def user(payload: bytes, *, is_v2: bool) -> Shape:
    """GET_USER, CREATE_USER: with its rights."""
    reader = Reader(payload)
    shown = _user(reader, is_v2=is_v2)
    if not reader.u8("has_permissions"):
        return shown | {"permissions": None}
    block = reader.take(reader.u32("the rights"), "the rights")
    return shown | {"permissions": _permissions(read_permissions(block))}


def _user(reader: Reader, *, is_v2: bool) -> Shape:
    number, created_at, status = struct.unpack("<IQB", reader.take(13, "a user"))
    name = reader.short_text("a user's name")
    if is_v2:
        _pairs(reader)
    return {"id": number, "created_at": created_at, "status": _STATUSES[status], "username": name}


def _permissions(permissions: Permissions) -> Shape:
    found: dict[str, Shape] = {}
    for number, flags in permissions.streams.items():
        own = {str(topic): asdict(each) for (of, topic), each in permissions.topics.items() if of == number}
        found[str(number)] = asdict(flags) | {"topics": own or None}
    return {"global": asdict(permissions.everywhere), "streams": found or None}


def tokens(payload: bytes) -> list[Shape]:
    """GET_PERSONAL_ACCESS_TOKENS."""
    reader, found = Reader(payload), list[Shape]()
    while not reader.is_at_end:
        found.append({"name": reader.short_text("a name"), "expiry_at": reader.u64("an expiry") or None})
    return found


def token(payload: bytes) -> Shape:
    """CREATE_PERSONAL_ACCESS_TOKEN."""
    return {"token": Reader(payload).short_text("a token")}


def group(payload: bytes) -> Shape:
    """CREATE_CONSUMER_GROUP: without members."""
    reader = Reader(payload)
    number, partitions, members = struct.unpack("<III", reader.take(12, "a group"))
    name = reader.short_text("a group's name")
    return {"id": number, "name": name, "partitions_count": partitions, "members_count": members, "members": []}


def stats(payload: bytes, *, is_later: bool) -> Shape:
    """GET_STATS."""
    reader = Reader(payload)
    names = ("process_id", "cpu_usage", "total_cpu_usage", "memory_usage", "total_memory", "available_memory")
    shown: Shape = dict(zip(names, struct.unpack("<IffQQQ", reader.take(36, "statistics")), strict=True))
    for name in ("run_time", "start_time", "read_bytes", "written_bytes", "messages_size_bytes"):
        shown[name] = reader.u64(name)
    for name in ("streams", "topics", "partitions", "segments"):
        shown[f"{name}_count"] = reader.u32(name)
    shown["messages_count"] = reader.u64("messages")
    for name in ("clients", "consumer_groups"):
        shown[f"{name}_count"] = reader.u32(name)
    for name in ("hostname", "os_name", "os_version", "kernel_version", "iggy_server_version"):
        shown[name] = reader.long_text(name)
    shown["iggy_server_semver"] = reader.u32("the version") or None
    reader.u32("the number of caches")
    shown["cache_metrics"] = {}
    if is_later:
        shown["threads_count"] = reader.u32("threads")
        shown["free_disk_space"], shown["total_disk_space"] = reader.u64("free"), reader.u64("total")
    return shown


def cluster(payload: bytes) -> Shape:
    """GET_CLUSTER_METADATA."""
    reader = Reader(payload)
    name, nodes = reader.long_text("the name"), list[Shape]()
    for _ in range(reader.u32("the nodes")):
        node, ip = reader.long_text("a node"), reader.long_text("an address")
        tcp, quic, http, websocket, role, status = struct.unpack("<HHHHBB", reader.take(10, "a node"))
        endpoints = {"tcp": tcp, "quic": quic, "http": http, "websocket": websocket}
        nodes.append(
            {"name": node, "ip": ip, "endpoints": endpoints, "role": _ROLES[role], "status": _NODE_STATUSES[status]}
        )
    return {"name": name, "nodes": nodes}


def options(payload: bytes) -> list[Shape]:
    """DESCRIBE_OPTIONS."""
    reader, found = Reader(payload), list[Shape]()
    for _ in range(reader.u32("the options")):
        key, kind = reader.short_text("a key"), reader.u8("a kind")
        default = _value(kind, reader.take(reader.u32("a default"), "a default"))
        text = reader.long_text("a description")
        found.append({"key": key, "kind": _KINDS[kind], "default": default, "description": text})
    return found
