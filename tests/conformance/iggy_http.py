"""A client of Iggy's HTTP interface that knows only paths and JSON."""

import base64
import json
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

LIMIT_S = 30.0
PASSWORD: Final = "a password of the test"
"""Of the first user of a broker with `settings_of`."""
V1, SDK7, SDK9, V2 = "0.6.202", "0.7.0", "0.10.0", "0.11.0"
"""Versions that clients of each generation state."""
FIRST: Final = {V1: 1, SDK7: 1, SDK9: 0, V2: 0}
"""What each calls the first of anything."""


class RefusedError(Exception):
    """A request was refused: status of HTTP, and the JSON of the answer."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body

    @property
    def id(self) -> int:
        """Iggy's status."""
        return self.body["id"]


@dataclass
class Answer:
    """What a request was answered with; `body`: JSON, or text, `None` without one."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class Http:
    """A connection, with the token of its user after `login`."""

    connection: HTTPConnection
    token: str = ""
    seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Method and path of every request that was not refused."""

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None, raw: bytes = b""
    ) -> Answer:
        """The answer, whatever it is."""
        given = dict(headers or {})
        if self.token:
            given.setdefault("Authorization", f"Bearer {self.token}")
        data = json.dumps(body).encode() if body is not None else raw
        if data:
            given["Content-Type"] = "application/json"
        self.connection.request(method, path, data or None, given)
        reply = self.connection.getresponse()
        text = reply.read()
        shown: Any = text.decode() or None
        if reply.getheader("content-type") == "application/json":
            shown = json.loads(text)
        return Answer(reply.status, {name.lower(): value for name, value in reply.getheaders()}, shown)

    def good(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        """The body of an answer that must have this status.

        Raises:
            RefusedError: it has another one.
        """
        answer = self.ask(method, path, body)
        if answer.status != status:
            raise RefusedError(answer.status, answer.body)
        self.seen.add((method, path))
        return answer.body

    def login(self, password: str, name: str = "iggy", version: str | None = V2) -> int:
        """The number of the user."""
        body = {"username": name, "password": password} | ({"version": version} if version else {})
        identity = self.good("POST", "/users/login", body)
        self.token = identity["access_token"]["token"]
        return identity["user_id"]

    def create(self, stream: str, topic: str = "t", partitions: int = 1) -> str:
        """A stream with a topic; the path of the topic."""
        self.good("POST", "/streams", {"name": stream})
        body = {"name": topic, "partitions_count": partitions, "compression_algorithm": "none"}
        body |= {"message_expiry": 0, "max_topic_size": 0}
        self.good("POST", f"/streams/{quote(stream)}/topics", body)
        return f"/streams/{quote(stream)}/topics/{quote(topic)}"

    def send(self, topic: str, *payloads: bytes, **how: Any) -> Any:
        """Messages to partition `partition`, or balanced; the body of the answer."""
        partition = how.pop("partition", None)
        partitioning = {"kind": "balanced", "value": ""}
        if partition is not None:
            partitioning = {"kind": "partition_id", "value": b64(partition.to_bytes(4, "little"))}
        messages = [{"id": 0, "payload": b64(payload), **how} for payload in payloads]
        body = {"partitioning": partitioning, "messages": messages}
        return self.good("POST", f"{topic}/messages", body, status=201)

    def poll(self, topic: str, **query: object) -> Any:
        """The body of the answer."""
        pairs = "&".join(f"{name}={value}" for name, value in query.items())
        return self.good("GET", f"{topic}/messages?{pairs}")


def settings_of(file: Path, password: str = PASSWORD, more: Mapping[str, object] | None = None) -> dict[str, object]:
    """Settings of a broker that serves both protocols. `file`: made here, for the password."""
    file.write_text(password)
    return {
        "iggy.listen": "127.0.0.1:0",
        "iggy.http_listen": "127.0.0.1:0",
        "iggy.root_password_file": str(file),
        "cursors.partitions": 1,
        **(more or {}),
    }


def refused(status: int, number: int | None = None) -> "pytest.RaisesExc[RefusedError]":
    """An answer with a status of HTTP and Iggy's number, the same without one."""
    return pytest.raises(RefusedError, check=lambda error: error.status == status and error.id == (number or status))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def payloads(polled: Any) -> list[bytes]:
    """Of a poll's answer."""
    return [base64.b64decode(message["payload"]) for message in polled["messages"]]


@contextmanager
def connected(
    address: str, password: str | None = None, *, version: str | None = V2, context: ssl.SSLContext | None = None
) -> Generator[Http]:
    """A connection, logged in if there is a password."""
    host, _, port = address.rpartition(":")
    if context is None:
        connection = HTTPConnection(host, int(port), timeout=LIMIT_S)
    else:
        connection = HTTPSConnection("localhost", int(port), timeout=LIMIT_S, context=context)
    try:
        client = Http(connection)
        if password is not None:
            client.login(password, version=version)
        yield client
    finally:
        connection.close()
