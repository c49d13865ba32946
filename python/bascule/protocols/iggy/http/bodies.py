"""JSON of requests: which fields each has. Names and texts are checked where the commands are decided."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bascule.protocols.iggy.http.exchange import HttpReply, problem
from bascule.protocols.iggy.permissions import GlobalFlags, StreamFlags, TopicFlags

__all__ = [
    "BodyError",
    "CreateGroup",
    "CreateStream",
    "CreateToken",
    "CreateTopic",
    "CreateUser",
    "Login",
    "Partitions",
    "Password",
    "Permissions",
    "Rights",
    "Snapshot",
    "Token",
    "UpdateStream",
    "UpdateTopic",
    "UpdateUser",
    "read",
]

U32: Final = (1 << 32) - 1
U64: Final = (1 << 64) - 1
Number = Annotated[int, Field(ge=0, le=U32)]
Long = Annotated[int, Field(ge=0, le=U64)]
Status = Literal["active", "inactive"]
Compression = Literal["none", "gzip"]


class Body(BaseModel):
    """What all have: fields that are not known are ignored, as by Iggy's server."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Login(Body):
    """POST /users/login."""

    username: str
    password: str
    version: str | None = None
    context: str | None = None


class Token(Body):
    """POST /users/refresh-token, POST /personal-access-tokens/login."""

    token: str


class CreateToken(Body):
    """POST /personal-access-tokens; `expiry`: µs, 0 = never."""

    name: str
    expiry: Long | None = None


@dataclass(frozen=True, slots=True)
class OnStream(StreamFlags):
    """Rights on a stream, and on topics of it, by their numbers."""

    topics: dict[str, TopicFlags] | None = None


class Permissions(Body):
    """All rights of a user; streams by their numbers."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, populate_by_name=True)

    everywhere: GlobalFlags = Field(default=GlobalFlags(), alias="global")
    streams: dict[str, OnStream] | None = None


class CreateUser(Body):
    """POST /users."""

    username: str
    password: str
    status: Status = "active"
    permissions: Permissions | None = None


class UpdateUser(Body):
    """PUT /users/{user}; what is left out stays."""

    username: str | None = None
    status: Status | None = None


class Rights(Body):
    """PUT /users/{user}/permissions; none takes all away."""

    permissions: Permissions | None = None


class Password(Body):
    """PUT /users/{user}/password."""

    current_password: str
    new_password: str


class CreateStream(Body):
    """POST /streams; a number is chosen by clients of servers up to 0.5 only."""

    name: str
    stream_id: Number | None = None
    options: dict[str, str] | None = None


class UpdateStream(Body):
    """PUT /streams/{stream}."""

    name: str
    options: dict[str, str] | None = None


class UpdateTopic(Body):
    """PUT /streams/{stream}/topics/{topic}. Expiry in µs, size in bytes: 0 = the broker's default, 2^64 - 1 = none."""

    name: str
    compression_algorithm: Compression | None = None
    message_expiry: Long | None = None
    max_topic_size: Long | None = None
    replication_factor: Annotated[int, Field(ge=0, le=255)] | None = None
    options: dict[str, str] | None = None


class CreateTopic(UpdateTopic):
    """POST /streams/{stream}/topics; a number is chosen by clients of servers up to 0.5 only."""

    partitions_count: Number
    topic_id: Number | None = None


class Partitions(Body):
    """POST /streams/{stream}/topics/{topic}/partitions."""

    partitions_count: Number


class CreateGroup(Body):
    """POST …/consumer-groups; a number is chosen by clients of servers up to 0.5 only."""

    name: str
    group_id: Number | None = None


class Snapshot(Body):
    """POST /snapshot."""

    compression: str = "Deflated"
    snapshot_types: list[str] = ["All"]


class BodyError(Exception):
    """A body is not what its path takes; `reply` is the answer."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__("the body is not what its path takes")
        self.reply = reply


BodyT = TypeVar("BodyT", bound=Body)


def read(model: type[BodyT], body: bytes) -> BodyT:
    """The body of a request.

    Raises:
        BodyError: 400 for what is not JSON, 422 for JSON of another shape.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        # Without what was given: it may be a password.
        first = invalid.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            refusal = problem(400, "bad_request", f"the body is not valid JSON: {first['msg']}")
        else:
            refusal = problem(422, "unprocessable_entity", f"{where or 'the body'}: {first['msg']}")
        raise BodyError(refusal) from None
