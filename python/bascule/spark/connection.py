"""Calls of a broker over Arrow Flight: cached connections, typed errors, retries within a deadline.

Connections are kept in this module, keyed by address and process id: Spark's workers are forked and used again, and
readers are pickled. Safe to use from several threads.
"""

import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from bascule.errors import BrokerError, UnavailableError, error
from bascule.spark.files import REMEDY, located
from bascule.spark.offsets import UNKNOWN, Predecessor
from bascule.spark.unreached import unreached

logger = logging.getLogger("bascule.spark")
_T = TypeVar("_T")

MAX_CONNECTIONS: Final = 16
"""Connections kept by one process; the one used longest ago is closed first."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    # A broker that disappeared without closing the connection is detected after 30 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]

_connections: OrderedDict[tuple[str, int], Any] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class PartitionStatus:
    """Present start and end of a partition. Ends are exclusive."""

    incarnation: int
    log_start: int
    high_watermark: int
    bytes: int

    @property
    def record_bytes(self) -> float:
        """Mean size of a stored record."""
        count = self.high_watermark - self.log_start
        return self.bytes / count if count > 0 else 0.0


@dataclass(frozen=True)
class StreamStatus:
    """Partitions of a stream by number, the answers to time look-ups by (partition, time in ns), and what identifies
    the records before the offsets asked for, by (partition, offset).
    """

    stream: str
    partitions: Mapping[int, PartitionStatus]
    times: Mapping[tuple[int, int], int | None]
    before: Mapping[tuple[int, int], Predecessor]


@dataclass(frozen=True)
class StatusRequest:
    """A request for the status of one stream.

    Attributes:
        stream: its name.
        partitions: numbers; None = all.
        times: (partition, time in ns) to look up.
        beyond: offsets that the caller has, by partition; a wait ends when one of them is passed.
        before: (partition, offset) whose preceding record is to be identified.
    """

    stream: str
    partitions: Sequence[int] | None = None
    times: Sequence[tuple[int, int]] = ()
    beyond: Mapping[int, int] | None = None
    before: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Broker:
    """Address and options of a broker. Has no connection, so it is cheap to pickle."""

    address: str
    namespace: str
    request_timeout_ms: int
    retry_deadline_ms: int

    def streams(self) -> list[str]:
        """Names of all streams of the namespace, sorted."""

        def call() -> list[str]:
            descriptors = [
                info.descriptor for info in flight_client(self.address).list_flights(options=self._options())
            ]
            paths = [[part.decode() for part in descriptor.path] for descriptor in descriptors]
            return sorted(path[1] for path in paths if len(path) == 2 and path[0] == self.namespace)

        return self._retrying(call)

    def status(self, requests: Sequence[StatusRequest], *, wait_ms: int = 0) -> dict[str, StreamStatus]:
        """The state of streams, after waiting up to `wait_ms` for records beyond those that the caller has."""
        body = json.dumps([self._request(request, wait_ms) for request in requests]).encode()

        def call() -> dict[str, StreamStatus]:
            flight: Any = import_module("pyarrow.flight")
            action = flight.Action("offsets", body)
            answers = list(flight_client(self.address).do_action(action, options=self._options(wait_ms)))
            found = [_status(document) for document in json.loads(answers[0].body.to_pybytes())]
            return {status.stream: status for status in found}

        return self._retrying(call)

    def read(self, ticket: Mapping[str, Any]) -> Iterator[tuple[Any, int]]:
        """Record batches of a ticket, each with the next offset to read. Nothing is retried here.

        Closing the iterator cancels the call.

        Raises:
            BrokerError: the error of the broker.
        """
        flight: Any = import_module("pyarrow.flight")
        document = json.dumps({"namespace": self.namespace, **ticket}).encode()
        reader: Any = None
        try:
            reader = flight_client(self.address).do_get(flight.Ticket(document))
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    reader = None
                    return
                yield chunk.data, int(json.loads(chunk.app_metadata.to_pybytes())["next"])
        except Exception as cause:  # noqa: BLE001 - of pyarrow and gRPC
            reader = None
            failure = unreached(from_flight(cause), self.address)
            raise failure from _unexplained(failure, cause)
        finally:
            if reader is not None:
                reader.cancel()

    def _request(self, request: StatusRequest, wait_ms: int) -> dict[str, Any]:
        document: dict[str, Any] = {"namespace": self.namespace, "stream": request.stream}
        if request.partitions is not None:
            document["partitions"] = list(request.partitions)
        if request.times:
            document["times"] = [{"partition": partition, "time_ns": time_ns} for partition, time_ns in request.times]
        if request.before:
            document["before"] = [{"partition": partition, "offset": offset} for partition, offset in request.before]
        if wait_ms and request.beyond is not None:
            document["wait_ms"] = wait_ms
            document["beyond"] = {str(partition): offset for partition, offset in request.beyond.items()}
        return document

    def _options(self, wait_ms: int = 0) -> Any:
        flight: Any = import_module("pyarrow.flight")
        return flight.FlightCallOptions(timeout=(self.request_timeout_ms + wait_ms) / 1000)

    def _retrying(self, call: Callable[[], _T]) -> _T:
        backoff = Backoff(self.retry_deadline_ms)
        while True:
            try:
                return call()
            except Exception as cause:  # noqa: BLE001 - as above
                failure = unreached(from_flight(cause), self.address)
                if not backoff.pause(failure):
                    raise failure from _unexplained(failure, cause)


class Backoff:
    """Pauses between attempts, within a deadline that restarts after each success."""

    def __init__(self, deadline_ms: int) -> None:
        self._deadline_s = deadline_ms / 1000
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def succeeded(self) -> None:
        """Record progress: the deadline restarts with the next failure."""
        self._since = None
        self._pause_s = _FIRST_PAUSE_S

    def pause(self, failure: BrokerError, what: str = "") -> bool:
        """Wait before the next attempt; False = `failure` is final or the deadline has passed.

        Args:
            failure: of the last attempt.
            what: names the place in the warning, if the failure does not.
        """
        if not is_transient(failure):
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if self._deadline_s:
                place = f"{what}: " if what else ""
                logger.warning("%s%s; retrying for up to %g s", place, failure, self._deadline_s)
        if now + self._pause_s > self._since + self._deadline_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return True


def is_transient(failure: BrokerError) -> bool:
    """Whether the same call may succeed later."""
    return isinstance(failure, UnavailableError) or failure.retry == "backoff" or failure.code == "not_leader"


def _unexplained(failure: BrokerError, cause: Exception) -> Exception | None:
    """The exception of pyarrow, if the error for it does not say all that it does."""
    return cause if failure.code == "internal" else None


def from_flight(cause: BaseException) -> BrokerError:
    """The typed error of an exception of pyarrow, with the broker's code and details if it sent them."""
    if isinstance(cause, BrokerError):
        return cause
    details: dict[str, Any] = {}
    extra = getattr(cause, "extra_info", b"")
    if extra:
        try:
            details = json.loads(extra)
        except ValueError:
            details = {}
    message, text_code = _sentence(str(cause))
    code = str(details.pop("code", "")) or text_code or _CODES.get(type(cause).__name__, "internal")
    return error(code, message or type(cause).__name__, details)


_CODES: Final = {
    "FlightUnavailableError": "unavailable",
    "FlightTimedOutError": "unavailable",
    "FlightCancelledError": "unavailable",
    "FlightUnauthenticatedError": "unauthenticated",
    "FlightUnauthorizedError": "permission_denied",
    "ConnectionError": "unavailable",
}
"""Codes of errors that the broker did not send, by the class of pyarrow's exception."""


def _sentence(text: str) -> tuple[str, str]:
    """The broker's message, without the text that gRPC and pyarrow add, and its code; "" = it has none."""
    for end in (". gRPC client debug context:", ". Client context:", ". Detail:"):
        text = text.split(end, maxsplit=1)[0]
    text = text.split("with message: ", maxsplit=1)[-1].strip()
    match = re.fullmatch(r"(.*) \[([a-z_]+)\]", text, re.DOTALL)
    return (match[1], match[2]) if match else (text, "")


def _status(document: Mapping[str, Any]) -> StreamStatus:
    partitions = {
        int(entry["partition"]): PartitionStatus(
            incarnation=int(entry["incarnation"]),
            log_start=int(entry["log_start"]),
            high_watermark=int(entry["high_watermark"]),
            bytes=int(entry["bytes"]),
        )
        for entry in document["partitions"]
    }
    times = {(int(entry["partition"]), int(entry["time_ns"])): entry["offset"] for entry in document["times"]}
    before = {
        (int(entry["partition"]), int(entry["offset"])): Predecessor(
            _known(entry["link"]), _known(entry["timestamp_ns"])
        )
        for entry in document["before"]
    }
    return StreamStatus(str(document["stream"]), partitions, times, before)


def _known(value: int | None) -> int:
    return UNKNOWN if value is None else int(value)


_TLS_OPTIONS: Final = {"ca": "tls_root_certs", "cert": "cert_chain", "key": "private_key"}


def _protection(query: str) -> dict[str, bytes]:
    """The content of the files named in an address; every executor reads its own files."""
    try:
        return {_TLS_OPTIONS[name]: located(file).read_bytes() for name, file in parse_qsl(query)}
    except OSError as failure:
        message = f"{failure.filename} cannot be read here: {failure.strerror}; {REMEDY}"
        raise error("invalid_argument", message) from None


def flight_client(address: str) -> Any:
    """The connection of this process to `address`."""
    flight: Any = import_module("pyarrow.flight")
    key = (address, os.getpid())
    with _lock:
        client = _connections.get(key)
        if client is None:
            place, _, query = address.partition("?")
            client = flight.FlightClient(place, generic_options=_CHANNEL_OPTIONS, **_protection(query))
            _connections[key] = client
        _connections.move_to_end(key)
        while len(_connections) > MAX_CONNECTIONS:
            _connections.popitem(last=False)
        return client
