"""The Liftbridge API without a client library: every call, with unchanged codes and texts."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import grpc
from bascule import _admin_pb
from bascule._liftbridge_pb import message, methods
from bascule._methods import METHODS

OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
TIMEOUT_S: Final = 60.0
LEADER, ALL, NONE = 0, 1, 2
NEW_ONLY, OFFSET, EARLIEST, LATEST, TIMESTAMP = range(5)
UNKNOWN, BAD_REQUEST, NOT_FOUND, INTERNAL, READONLY, INCORRECT_OFFSET = range(6)
PERMISSION_DENIED = 7
STOP_ON_CANCEL, STOP_OFFSET, STOP_LATEST, STOP_TIMESTAMP = range(4)


@dataclass
class Failed(Exception):  # noqa: N818 - a status, not an error of ours
    """The status of a failed call."""

    code: grpc.StatusCode
    text: str
    error: dict[str, Any] = field(default_factory=dict[str, Any])
    """The code and the values of the trailer `bascule-error-bin`."""

    def __str__(self) -> str:
        return f"{self.code.name} {self.text}"


def failed(code: str, text: str) -> Callable[[BaseException], bool]:
    """A check for `pytest.raises(Failed, check=…)`: this code and exactly this text."""
    return lambda failure: isinstance(failure, Failed) and (failure.code.name, failure.text) == (code, text)


class Api:
    """One connection, with TLS if credentials are given. Safe to use from several threads; a context manager."""

    def __init__(self, address: str, credentials: Any = None) -> None:
        secure = credentials is not None
        self._channel = (
            grpc.secure_channel(address, credentials, OPTIONS) if secure else grpc.insecure_channel(address, OPTIONS)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, timeout: float | None = TIMEOUT_S, **fields: Any) -> Any:
        """One unary call; raises `Failed`."""
        kinds = methods()[method]
        call = self._channel.unary_unary(
            f"/proto.API/{method}",
            request_serializer=_bytes,
            response_deserializer=message(kinds[1]).FromString,
        )
        try:
            return call(message(kinds[0])(**fields), timeout=timeout)
        except grpc.RpcError as failure:
            raise _failed(failure) from None

    def admin(self, method: str, **fields: Any) -> Any:
        """One call of `bascule.admin.v1`; raises `Failed`."""
        request = _admin_pb.message(f"{method}Request")(**fields)
        answer = self.raw(f"/{METHODS[method].service}/{method}", request.SerializeToString(deterministic=True))
        return _admin_pb.message(f"{method}Response").FromString(answer)

    def raw(self, path: str, body: bytes) -> bytes:
        """One unary call by its path, in bytes; raises `Failed`."""
        try:
            return self._channel.unary_unary(path)(body, timeout=TIMEOUT_S)
        except grpc.RpcError as failure:
            raise _failed(failure) from None

    def create(self, name: str, **fields: Any) -> None:
        """Create a stream; the default subject is its name."""
        fields.setdefault("subject", name)
        self.call("CreateStream", name=name, **fields)

    def publish(self, stream: str, value: bytes = b"", **fields: Any) -> int:
        """Publish one record, by default with policy ALL. Returns its offset."""
        fields.setdefault("ackPolicy", ALL)
        return self.call("Publish", stream=stream, value=value, **fields).ack.offset

    def fill(self, stream: str, count: int, **fields: Any) -> None:
        """Publish `0` … `count - 1`."""
        for index in range(count):
            self.publish(stream, b"%d" % index, **fields)

    def publish_async(self, requests: Iterable[dict[str, Any]]) -> list[Any]:
        """All answers to requests on one PublishAsync stream."""
        return list(self.publishing(requests, TIMEOUT_S))

    def publishing(self, requests: Iterable[dict[str, Any]], timeout: float | None) -> Iterator[Any]:
        """The answers to requests on one PublishAsync stream as they arrive; raises `Failed`."""
        call = self._channel.stream_stream(
            "/proto.API/PublishAsync",
            request_serializer=_bytes,
            response_deserializer=message("PublishResponse").FromString,
        )
        try:
            yield from call((message("PublishRequest")(**item) for item in requests), timeout=timeout)
        except grpc.RpcError as failure:
            raise _failed(failure) from None

    def subscribe(self, stream: str, timeout: float | None = TIMEOUT_S, **fields: Any) -> "Reading":
        """A subscription, after its handshake; raises `Failed`. From the earliest by default."""
        call = self._channel.unary_stream(
            "/proto.API/Subscribe",
            request_serializer=_bytes,
            response_deserializer=message("Message").FromString,
        )
        request = message("SubscribeRequest")(stream=stream, **{"startPosition": EARLIEST, **fields})
        return Reading(call(request, timeout=timeout))

    def read(self, stream: str, **fields: Any) -> list[Any]:
        """All records up to the latest."""
        found, end = self.subscribe(stream, **{"stopPosition": STOP_LATEST, **fields}).rest()
        assert str(end) == "RESOURCE_EXHAUSTED Stop offset reached"
        return found

    def stream(self, name: str) -> Any:
        """The stream in the metadata."""
        return self.call("FetchMetadata", streams=[name]).streamMetadata[0]

    def partition(self, stream: str, partition: int = 0) -> Any:
        """The partition's metadata from its leader."""
        return self.call("FetchPartitionMetadata", stream=stream, partition=partition).metadata


class Reading:
    """An open subscription."""

    def __init__(self, call: Any) -> None:
        self._call = call
        handshake = self.next()
        assert handshake == message("Message")(), "the first message is empty"

    def next(self) -> Any:
        """The next message; raises `Failed` at the end, `StopIteration` if it ended with OK."""
        try:
            return next(self._call)
        except grpc.RpcError as failure:
            raise _failed(failure) from None

    def take(self, count: int) -> list[Any]:
        """The next `count` messages."""
        return [self.next() for _ in range(count)]

    def rest(self) -> tuple[list[Any], Failed | None]:
        """The messages until the end, and the error; None = OK."""
        found: list[Any] = []
        try:
            while True:
                found.append(self.next())
        except Failed as end:
            return found, end
        except StopIteration:
            return found, None

    def cancel(self) -> None:
        """Cancel the subscription."""
        self._call.cancel()


def values(found: Iterable[Any]) -> list[bytes]:
    """The values of messages."""
    return [item.value for item in found]


def _bytes(request: Any) -> bytes:
    serialized: bytes = request.SerializeToString(deterministic=True)
    return serialized


def _failed(failure: Any) -> Failed:
    trailers = dict(failure.trailing_metadata() or ())
    return Failed(failure.code(), failure.details(), json.loads(trailers.get("bascule-error-bin", b"{}")))
