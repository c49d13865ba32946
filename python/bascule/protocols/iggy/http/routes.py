"""Every path of the interface with its methods, and what each of those that are decided here makes of a request.

A handler is given the request, what carries out commands, and the parts of the path that stand for something.
"""

import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from bascule.protocols.iggy.http import bodies, gauges, payloads, shapes
from bascule.protocols.iggy.http.bodies import Body, read
from bascule.protocols.iggy.http.exchange import HttpReply, HttpRequest, absent
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = ["OPEN", "ROUTES", "Commands", "Route", "find"]


class Commands(Protocol):
    """Carries out commands of the binary protocol for the user of a request."""

    async def run(self, request: HttpRequest, name: str, payload: bytes = b"") -> bytes:
        """The payload of the reply to a command.

        Raises:
            IggyError: it fails.
        """
        ...

    async def log_in(self, request: HttpRequest, name: str, payload: bytes, version: str | None) -> HttpReply:
        """An identity for whom a login lets in."""
        ...

    async def refresh(self, token: str) -> HttpReply:
        """A new identity for the user of a token."""
        ...

    def log_out(self, request: HttpRequest) -> HttpReply:
        """Revokes the token of the request."""
        ...

    def users(self) -> int:
        """How many there are."""
        ...


HttpHandler: TypeAlias = Callable[[HttpRequest, Commands, tuple[str, ...]], Awaitable[HttpReply]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path.

    Attributes:
        method: of HTTP.
        path: its parts; those in braces stand for something.
        summary: what it does.
        status: of a request that succeeds.
        handler: what is made of a request; `None` = the data plane answers.
        body: of the request; `None` = it has none, or the data plane reads it.
        query: parameters.
    """

    method: str
    path: tuple[str, ...]
    summary: str
    status: int
    handler: HttpHandler | None = None
    body: type[Body] | None = None
    query: tuple[str, ...] = ()


NO_CONTENT: Final = HttpReply(204)
_CREATED: Final = 201


def named(name: str) -> Callable[[HttpRequest, Commands, tuple[str, ...]], Awaitable[HttpReply]]:
    """A command about what the path names, without a result."""

    async def handle(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
        await commands.run(request, name, payloads.path(*parts))
        return NO_CONTENT

    return handle


async def log_in(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /users/login."""
    asked = read(bodies.Login, request.body)
    payload = payloads.text(asked.username, IggyStatus.INVALID_CREDENTIALS)
    payload += payloads.text(asked.password, IggyStatus.INVALID_CREDENTIALS)
    return await commands.log_in(request, "LOGIN_USER", payload, asked.version)


async def log_in_by_token(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /personal-access-tokens/login."""
    payload = payloads.text(read(bodies.Token, request.body).token, IggyStatus.INVALID_TOKEN)
    return await commands.log_in(request, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", payload, None)


async def refresh(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /users/refresh-token."""
    return await commands.refresh(read(bodies.Token, request.body).token)


async def log_out(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """DELETE /users/logout."""
    return commands.log_out(request)


async def get_stats(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /stats."""
    return HttpReply(200, await _stats(request, commands))


async def metrics(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /metrics."""
    stats = await _stats(request, commands)
    return HttpReply(200, gauges.text(stats, commands.users(), request.requests), "metrics")


async def _stats(request: HttpRequest, commands: Commands) -> shapes.Shape:
    is_later = request.generation != "v1"
    payload = await commands.run(request, "GET_STATS", struct.pack("<IB", request.clients, is_later))
    return shapes.stats(payload, is_later=is_later)


async def cluster(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /cluster/metadata."""
    _check_v2(request)
    return HttpReply(200, shapes.cluster(await commands.run(request, "GET_CLUSTER_METADATA")))


async def options(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """GET /options/{scope}."""
    _check_v2(request)
    scope = {"topic": 1, "stream": 2, "user": 3}.get(parts[0])
    if scope is None:
        return absent()
    return HttpReply(200, shapes.options(await commands.run(request, "DESCRIBE_OPTIONS", bytes([scope]))))


def _check_v2(request: HttpRequest) -> None:
    if not request.is_v2:
        raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, "clients of servers 0.9 have this, earlier ones do not")


async def unavailable(_request: HttpRequest, _commands: Commands, _parts: tuple[str, ...]) -> HttpReply:
    """What the broker does not offer to any client of Iggy."""
    raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, "this broker does not offer it")


async def welcome(_request: HttpRequest, _commands: Commands, _parts: tuple[str, ...]) -> HttpReply:
    """GET /."""
    return HttpReply(200, "Iggy API", "text")


async def list_users(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /users."""
    return HttpReply(200, shapes.users(await commands.run(request, "GET_USERS"), is_v2=request.is_v2))


async def get_user(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """GET /users/{user}."""
    payload = await commands.run(request, "GET_USER", payloads.path(*parts))
    return HttpReply(200, shapes.user(payload, is_v2=request.is_v2)) if payload else absent()


async def create_user(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /users."""
    asked = read(bodies.CreateUser, request.body)
    payload = payloads.text(asked.username, IggyStatus.INVALID_USERNAME)
    payload += payloads.text(asked.password, IggyStatus.INVALID_PASSWORD)
    payload += bytes([payloads.status(asked.status)]) + payloads.rights(asked.permissions)
    reply = await commands.run(request, "CREATE_USER", payload)
    return HttpReply(200, shapes.user(reply, is_v2=request.is_v2))


async def update_user(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """PUT /users/{user}."""
    asked = read(bodies.UpdateUser, request.body)
    name = b"\0"
    if asked.username is not None:
        name = b"\1" + payloads.text(asked.username, IggyStatus.INVALID_USERNAME)
    status = b"\0" if asked.status is None else bytes([1, payloads.status(asked.status)])
    await commands.run(request, "UPDATE_USER", payloads.path(*parts) + name + status)
    return NO_CONTENT


async def update_rights(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """PUT /users/{user}/permissions."""
    rights = payloads.rights(read(bodies.Rights, request.body).permissions)
    await commands.run(request, "UPDATE_PERMISSIONS", payloads.path(*parts) + rights)
    return NO_CONTENT


async def change_password(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """PUT /users/{user}/password."""
    asked = read(bodies.Password, request.body)
    payload = payloads.path(*parts) + payloads.text(asked.current_password, IggyStatus.INVALID_CREDENTIALS)
    await commands.run(
        request, "CHANGE_PASSWORD", payload + payloads.text(asked.new_password, IggyStatus.INVALID_PASSWORD)
    )
    return NO_CONTENT


async def list_tokens(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /personal-access-tokens."""
    return HttpReply(200, shapes.tokens(await commands.run(request, "GET_PERSONAL_ACCESS_TOKENS")))


async def create_token(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /personal-access-tokens."""
    asked = read(bodies.CreateToken, request.body)
    payload = payloads.text(asked.name, IggyStatus.INVALID_TOKEN_NAME) + struct.pack("<Q", asked.expiry or 0)
    return HttpReply(200, shapes.token(await commands.run(request, "CREATE_PERSONAL_ACCESS_TOKEN", payload)))


async def delete_token(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """DELETE /personal-access-tokens/{name}."""
    payload = payloads.text(parts[0], IggyStatus.INVALID_TOKEN_NAME)
    await commands.run(request, "DELETE_PERSONAL_ACCESS_TOKEN", payload)
    return NO_CONTENT


async def list_streams(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """GET /streams."""
    return HttpReply(200, shapes.streams(await commands.run(request, "GET_STREAMS"), is_v2=request.is_v2))


async def get_stream(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """GET /streams/{stream}."""
    payload = await commands.run(request, "GET_STREAM", payloads.path(*parts))
    return HttpReply(200, shapes.stream(payload, is_v2=request.is_v2)) if payload else absent()


async def create_stream(request: HttpRequest, commands: Commands, _: tuple[str, ...]) -> HttpReply:
    """POST /streams."""
    asked = read(bodies.CreateStream, request.body)
    payload = _chosen(request, asked.stream_id) + payloads.text(asked.name, IggyStatus.INVALID_STREAM_NAME)
    payload += payloads.options(asked.options or {}) if request.is_v2 else b""
    return HttpReply(200, shapes.stream(await commands.run(request, "CREATE_STREAM", payload), is_v2=request.is_v2))


async def update_stream(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """PUT /streams/{stream}."""
    asked = read(bodies.UpdateStream, request.body)
    payload = payloads.path(*parts) + payloads.text(asked.name, IggyStatus.INVALID_STREAM_NAME)
    payload += payloads.options(asked.options or {}) if request.is_v2 else b""
    await commands.run(request, "UPDATE_STREAM", payload)
    return NO_CONTENT


def _chosen(request: HttpRequest, number: int | None) -> bytes:
    """The number that a client chooses, of those that count from 1; 0 = none."""
    return struct.pack("<I", number or 0) if request.first_number else b""


async def list_topics(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """GET /streams/{stream}/topics."""
    payload = await commands.run(request, "GET_TOPICS", payloads.path(*parts))
    return HttpReply(200, shapes.topics(payload, is_v2=request.is_v2))


async def get_topic(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """GET /streams/{stream}/topics/{topic}."""
    payload = await commands.run(request, "GET_TOPIC", payloads.path(*parts))
    return HttpReply(200, shapes.topic(payload, is_v2=request.is_v2)) if payload else absent()


async def create_topic(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """POST /streams/{stream}/topics."""
    asked = read(bodies.CreateTopic, request.body)
    partitions = struct.pack("<I", asked.partitions_count)
    if request.is_v2:
        named = payloads.text(asked.name, IggyStatus.INVALID_TOPIC_NAME) + payloads.topic_options(asked)
        payload = partitions + named
    else:
        payload = _chosen(request, asked.topic_id) + partitions + payloads.topic_settings(asked)
    reply = await commands.run(request, "CREATE_TOPIC", payloads.path(*parts) + payload)
    return HttpReply(200, shapes.topic(reply, is_v2=request.is_v2))


async def update_topic(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """PUT /streams/{stream}/topics/{topic}."""
    asked = read(bodies.UpdateTopic, request.body)
    if request.is_v2:
        payload = payloads.text(asked.name, IggyStatus.INVALID_TOPIC_NAME) + payloads.topic_options(asked)
    else:
        payload = payloads.topic_settings(asked)
    await commands.run(request, "UPDATE_TOPIC", payloads.path(*parts) + payload)
    return NO_CONTENT


async def create_partitions(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """POST …/partitions."""
    count = struct.pack("<I", read(bodies.Partitions, request.body).partitions_count)
    await commands.run(request, "CREATE_PARTITIONS", payloads.path(*parts) + count)
    return HttpReply(200 if request.is_v2 else _CREATED)


async def delete_partitions(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """DELETE …/partitions?partitions_count=."""
    count = struct.pack("<I", request.number("partitions_count"))
    await commands.run(request, "DELETE_PARTITIONS", payloads.path(*parts) + count)
    return NO_CONTENT


async def delete_segments(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """DELETE …/partitions/{partition}?segments_count=."""
    *place, partition = parts
    numbers = payloads.number(partition) + struct.pack("<I", request.number("segments_count"))
    await commands.run(request, "DELETE_SEGMENTS", payloads.path(*place) + numbers)
    return NO_CONTENT


async def create_group(request: HttpRequest, commands: Commands, parts: tuple[str, ...]) -> HttpReply:
    """POST …/consumer-groups."""
    asked = read(bodies.CreateGroup, request.body)
    payload = payloads.path(*parts) + _chosen(request, asked.group_id)
    payload += payloads.text(asked.name, IggyStatus.INVALID_GROUP_NAME)
    shown = shapes.group(await commands.run(request, "CREATE_CONSUMER_GROUP", payload))
    return HttpReply(200 if request.is_v2 else _CREATED, shown)


OPEN: Final = frozenset(
    {"/", "/openapi.json", "/ping", "/users/login", "/users/refresh-token", "/personal-access-tokens/login"}
)
"""Paths that need no token."""


def _route(  # noqa: PLR0913 (a row of the table)
    method: str, path: str, status: int, summary: str, handler: HttpHandler | None = None, *, query: str = "",
    body: type[Body] | None = None,
) -> Route:  # fmt: skip
    return Route(method, tuple(path[1:].split("/")), summary, status, handler, body, tuple(query.split()))


_TOPIC: Final = "/streams/{stream}/topics/{topic}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition}}"
_ONE: Final = "consumer_id partition_id"
_POLL: Final = "consumer_id partition_id kind value count auto_commit"

ROUTES: Final[tuple[Route, ...]] = (
    _route("GET", "/", 200, "What this is", welcome),
    _route("GET", "/ping", 200, "Whether the broker answers"),
    _route("GET", "/stats", 200, "Statistics of the broker", get_stats),
    _route("GET", "/metrics", 200, "Metrics", metrics),
    _route("GET", "/cluster/metadata", 200, "The broker's address", cluster),
    _route("GET", "/options/{scope}", 200, "Options of topics, streams or users", options),
    _route("POST", "/snapshot", 200, "Not offered", unavailable, body=bodies.Snapshot),
    _route("GET", "/clients", 200, "Connections of the binary protocol"),
    _route("GET", "/clients/{client}", 200, "One of them"),
    _route("POST", "/users/login", 200, "Log in by name", log_in, body=bodies.Login),
    _route("DELETE", "/users/logout", 204, "Revoke the token", log_out),
    _route("POST", "/users/refresh-token", 200, "A new token", refresh, body=bodies.Token),
    _route("GET", "/users", 200, "All users", list_users),
    _route("POST", "/users", 200, "Create a user", create_user, body=bodies.CreateUser),
    _route("GET", "/users/{user}", 200, "A user", get_user),
    _route("PUT", "/users/{user}", 204, "Change name or status", update_user, body=bodies.UpdateUser),
    _route("DELETE", "/users/{user}", 204, "Delete a user", named("DELETE_USER")),
    _route("PUT", "/users/{user}/permissions", 204, "Replace all rights", update_rights, body=bodies.Rights),
    _route("PUT", "/users/{user}/password", 204, "Change the password", change_password, body=bodies.Password),
    _route("GET", "/personal-access-tokens", 200, "Tokens of the caller", list_tokens),
    _route("POST", "/personal-access-tokens", 200, "Create a token", create_token, body=bodies.CreateToken),
    _route("POST", "/personal-access-tokens/login", 200, "Log in by token", log_in_by_token, body=bodies.Token),
    _route("DELETE", "/personal-access-tokens/{name}", 204, "Delete a token", delete_token),
    _route("GET", "/streams", 200, "All streams", list_streams),
    _route("POST", "/streams", 200, "Create a stream", create_stream, body=bodies.CreateStream),
    _route("GET", "/streams/{stream}", 200, "A stream with its topics", get_stream),
    _route("PUT", "/streams/{stream}", 204, "Rename a stream", update_stream, body=bodies.UpdateStream),
    _route("DELETE", "/streams/{stream}", 204, "Delete a stream", named("DELETE_STREAM")),
    _route("DELETE", "/streams/{stream}/purge", 204, "Delete all messages", named("PURGE_STREAM")),
    _route("GET", "/streams/{stream}/topics", 200, "Topics of a stream", list_topics),
    _route("POST", "/streams/{stream}/topics", 200, "Create a topic", create_topic, body=bodies.CreateTopic),
    _route("GET", _TOPIC, 200, "A topic with its partitions", get_topic),
    _route("PUT", _TOPIC, 204, "Change a topic", update_topic, body=bodies.UpdateTopic),
    _route("DELETE", _TOPIC, 204, "Delete a topic", named("DELETE_TOPIC")),
    _route("DELETE", f"{_TOPIC}/purge", 204, "Delete all messages", named("PURGE_TOPIC")),
    _route("POST", f"{_TOPIC}/partitions", 200, "Add partitions", create_partitions, body=bodies.Partitions),
    _route("DELETE", f"{_TOPIC}/partitions", 204, "Remove the last", delete_partitions, query="partitions_count"),
    _route("DELETE", _PARTITION, 204, "Remove the oldest segments", delete_segments, query="segments_count"),
    _route("POST", f"{_TOPIC}/messages", 201, "Send messages", query="ack"),
    _route("GET", f"{_TOPIC}/messages", 200, "Poll messages", query=_POLL),
    _route("GET", f"{_TOPIC}/messages/flush/{{partition}}/{{fsync}}", 200, "Wait for the commit of what was sent"),
    _route("GET", f"{_TOPIC}/consumer-offsets", 200, "A stored offset", query=_ONE),
    _route("PUT", f"{_TOPIC}/consumer-offsets", 204, "Store an offset"),
    _route("DELETE", f"{_TOPIC}/consumer-offsets/{{consumer}}", 204, "Delete an offset", query="partition_id"),
    _route("GET", f"{_TOPIC}/consumer-groups", 200, "Groups of a topic"),
    _route("POST", f"{_TOPIC}/consumer-groups", 200, "Create a group", create_group, body=bodies.CreateGroup),
    _route("GET", f"{_TOPIC}/consumer-groups/{{group}}", 200, "A group with its members"),
    _route("DELETE", f"{_TOPIC}/consumer-groups/{{group}}", 204, "Delete a group", named("DELETE_CONSUMER_GROUP")),
)
"""All of them; of two that match a path, the first is meant."""


def find(path: tuple[str, ...]) -> Mapping[str, tuple[Route, tuple[str, ...]]]:
    """What a path offers, by method, each with the parts of the path that stand for something; empty = no such path."""
    found = dict[str, tuple[Route, tuple[str, ...]]]()
    for route in ROUTES:
        if len(route.path) == len(path) and all(
            wanted.startswith("{") or wanted == given for wanted, given in zip(route.path, path, strict=True)
        ):
            parts = tuple(given for wanted, given in zip(route.path, path, strict=True) if wanted.startswith("{"))
            found.setdefault(route.method, (route, parts))
    return found
