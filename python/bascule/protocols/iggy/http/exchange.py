"""Requests that the data plane hands over, and the replies to them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

from bascule.protocols.iggy.fields import MalformedError

__all__ = ["GENERATIONS", "Generation", "HttpReply", "HttpRequest", "absent", "first_number", "problem"]

Generation: TypeAlias = Literal["v1", "sdk7", "sdk8", "sdk9", "v2"]
GENERATIONS: Final[Mapping[str, str]] = {"v1": "iggy", "sdk7": "iggy", "sdk8": "iggy0", "sdk9": "iggy0", "v2": "iggy2"}
"""By generation of clients: the prefix of their commands."""
_LENGTH_BYTES: Final = 4


def first_number(generation: Generation) -> int:
    """What clients of a generation call the first of anything."""
    return 1 if GENERATIONS[generation] == "iggy" else 0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: its parts, decoded.
        query: parameters; the last of equal names.
        generation: of the client, as its token says; v2 before a login.
        token: of the request; empty before a login.
        clients: connections of the binary protocol.
        requests: requests of HTTP so far.
        body: as it came.
        user: `iggy:<id>` of who has sent it; `None` before a login.
        peer: `host:port` of the client.
        timeout_s: how long the answer may take.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    generation: Generation
    token: str
    clients: int
    requests: int
    body: bytes
    user: str | None
    peer: str
    timeout_s: float

    @property
    def is_v2(self) -> bool:
        """Whether the client is one of the current generation."""
        return self.generation == "v2"

    @property
    def first_number(self) -> int:
        """What the client calls the first of anything."""
        return first_number(self.generation)

    @classmethod
    def read(cls, data: bytes, user: str | None, peer: str, timeout_s: float) -> "HttpRequest":
        """What the data plane has sent: the length of the head, head, and body."""
        end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
        head: dict[str, Any] = json.loads(data[_LENGTH_BYTES:end])
        return cls(
            method=head["method"],
            path=tuple(head["path"]),
            query=dict(parse_qsl(head["query"], keep_blank_values=True)),
            generation=head["generation"] or "v2",
            token=head["token"],
            clients=head["clients"],
            requests=head["requests"],
            body=data[end:],
            user=user,
            peer=peer,
            timeout_s=timeout_s,
        )

    def number(self, name: str) -> int:
        """A parameter that is a number of 32 bits.

        Raises:
            MalformedError: it is missing, or not such a number.
        """
        text = self.query.get(name, "")
        if not (text.isascii() and text.isdigit() and int(text) < 1 << 32):
            raise MalformedError(f"the parameter {name} is {text[:40]!r}: give a number below 2^32")
        return int(text)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply.

    Attributes:
        status: of HTTP.
        body: a value to be shown as JSON, or text; `None` = there is none.
        kind: what a text is: `text` or `metrics`.
        allow: methods of the path, when that of the request is not one of them.
        revoked: tokens that are not valid any more, each with the seconds for which it would have been.
    """

    status: int
    body: object = None
    kind: str = "json"
    allow: str = ""
    revoked: Mapping[str, int] = field(default_factory=dict[str, int])

    def encode(self) -> bytes:
        """The length of a head, head, and body."""
        if self.body is None:
            kind, body = "", b""
        elif self.kind == "json":
            kind, body = "json", json.dumps(self.body, ensure_ascii=False).encode(errors="backslashreplace")
        else:
            kind, body = self.kind, str(self.body).encode()
        head = json.dumps({"status": self.status, "kind": kind, "allow": self.allow, "revoked": dict(self.revoked)})
        return len(head.encode()).to_bytes(_LENGTH_BYTES, "little") + head.encode() + body


def problem(status: int, code: str, reason: str, *, allow: str = "") -> HttpReply:
    """A refusal that Iggy's protocol has no status for."""
    return HttpReply(status, {"id": status, "code": code, "reason": reason, "field": None}, allow=allow)


def absent() -> HttpReply:
    """What a GET of something that is not there is answered with."""
    return problem(404, "not_found", "Resource not found")
