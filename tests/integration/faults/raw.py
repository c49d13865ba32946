"""The Liftbridge API without a client library: raw bytes, so that a test may send anything.

Requests and answers use the messages of `specs/proto`, but without a generated stub, which would reject some of them.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import grpc
from bascule._liftbridge_pb import message

UNBOUNDED: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
)
EARLIEST: Final = 2
STOP_LATEST: Final = 2
TIMEOUT_S: Final = 15.0


class Raw:
    """One connection to one broker. Safe to use from several threads; close it, or use it as a context."""

    def __init__(self, address: str) -> None:
        self._channel: Final = grpc.insecure_channel(address, UNBOUNDED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def unary(self, method: str, body: bytes, timeout: float = TIMEOUT_S) -> bytes:
        """One call of `proto.API`. Raises `grpc.RpcError`."""
        return self._channel.unary_unary(f"/proto.API/{method}")(body, timeout=timeout)

    def subscribe(self, body: bytes, timeout: float = TIMEOUT_S) -> Any:
        """The answers to one SubscribeRequest, an iterator that can be cancelled."""
        return self._channel.unary_stream("/proto.API/Subscribe")(body, timeout=timeout)

    def publish_async(self, bodies: Iterable[bytes], timeout: float = TIMEOUT_S) -> Any:
        """The answers to many PublishRequests."""
        return self._channel.stream_stream("/proto.API/PublishAsync")(iter(bodies), timeout=timeout)

    # -- the same with messages

    def create_stream(self, name: str, subject: str | None = None, **fields: Any) -> None:
        """Create a stream of one partition."""
        request = message("CreateStreamRequest")(name=name, subject=name if subject is None else subject, **fields)
        self.unary("CreateStream", request.SerializeToString())

    def publish(self, stream: str, value: bytes, **fields: Any) -> int:
        """Publish one record. Returns its offset."""
        answer = message("PublishResponse").FromString(self.unary("Publish", publish_request(stream, value, **fields)))
        return int(answer.ack.offset)

    def read(self, stream: str, partition: int = 0) -> list[Any]:
        """All records."""
        body = message("SubscribeRequest")(
            stream=stream, partition=partition, startPosition=EARLIEST, stopPosition=STOP_LATEST
        ).SerializeToString()
        return list(_until_end(self.subscribe(body)))


def publish_request(stream: str, value: bytes, **fields: Any) -> bytes:
    """A PublishRequest in bytes; any offset is expected unless the fields say otherwise."""
    return message("PublishRequest")(stream=stream, value=value, **{"expectedOffset": -1, **fields}).SerializeToString()


def _until_end(answers: Any) -> Iterator[Any]:
    first = True
    try:
        for body in answers:
            if not first:
                yield message("Message").FromString(body)
            first = False
    except grpc.RpcError as end:
        if end.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:  # the status of a subscription that reached its stop
            raise


def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status and the message of a call that must fail."""
    try:
        answer = call()
    except grpc.RpcError as failure:
        return failure.code(), failure.details() or ""
    raise AssertionError(f"it was accepted: {answer!r}")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
