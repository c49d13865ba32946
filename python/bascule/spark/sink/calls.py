"""Calls of `bascule.admin.v1` about sinks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bascule._admin_pb import message
from bascule.errors import BrokerError, error
from bascule.spark.admin_calls import admin_call
from bascule.spark.sink.identity import Writer
from bascule.spark.sink.options import SinkOptions

ANSWER_MS: Final = 5_000
"""How much longer than its wait a call may take."""


@dataclass(frozen=True)
class SinkStream:
    """A stream that is written to, and what it accepts."""

    name: str
    partitions: int
    max_record_bytes: int


@dataclass(frozen=True)
class OpenedSink:
    """The sink as its current writer sees it. `last_epoch` is None while no epoch of the query was decided."""

    id: int
    generation: int
    last_epoch: int | None
    streams: tuple[SinkStream, ...]


@dataclass(frozen=True)
class Target:
    """Rows of an epoch for one partition."""

    stream: str
    partition: int
    incarnation: int
    rows: int
    digest: str


@dataclass(frozen=True)
class Epoch:
    """What is published.

    Attributes:
        sink: id and generation, as every task saw them.
        winners: attempt by task; none for an epoch that is decided already.
        targets: none for an epoch that is decided already.
        input_rows: rows of the query's result.
        input_digest: of these, 32 hexadecimal digits.
        offsets_hash: of the checkpoint; empty = not known.
    """

    sink: tuple[int, int]
    token: str
    winners: tuple[int, ...]
    targets: tuple[Target, ...]
    input_rows: int
    input_digest: str
    offsets_hash: str


class SinkCalls:
    """The calls of one write. Cheap to make; each retries within `retryDeadlineMs`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def open(self, writer: Writer, streams: tuple[str, ...]) -> OpenedSink:
        """Make the writer the sink's current one.

        Raises:
            BrokerError: the writer was replaced (`sink_fenced`), another query writes there (`sink_conflict`), a stream
                does not exist, a right is missing, or the broker is not reachable.
        """
        request = message("OpenSinkRequest")(
            name=writer.name,
            namespace=self._options.namespace,
            kind=writer.kind,
            lifetime=writer.lifetime,
            query_id=writer.query_id,
            run_id=writer.run_id,
            take_over=self._options.take_over,
            streams=streams,
        )
        try:
            answer = self._call("OpenSink", request, self._options.request_timeout_ms)
        except BrokerError as failure:
            if failure.code != "stream_not_found":
                raise
            remedy = "correct the name, or create it with `bascule stream create`"
            raise error(failure.code, f"{failure}; {remedy}", failure.details) from failure
        last_epoch = answer.last_epoch if answer.HasField("last_epoch") else None
        found = tuple(_stream(item) for item in answer.streams)
        return OpenedSink(answer.id, answer.generation, last_epoch, found)

    def streams(self, names: Iterable[str]) -> dict[str, SinkStream]:
        """What streams accept, by name; those that do not exist, and those of the broker alone, are missing.

        Raises:
            BrokerError: the right to publish is missing, or the broker is not reachable.
        """
        request = message("FetchSinkStreamsRequest")(namespace=self._options.namespace, streams=names)
        answer = self._call("FetchSinkStreams", request, self._options.request_timeout_ms)
        return {item.name: _stream(item) for item in answer.streams}

    def publish(self, writer: Writer, epoch: Epoch) -> bool:
        """Decide an epoch; whether all its rows are readable already.

        Raises:
            BrokerError: nothing was decided, or (`outcome_unknown`) that is not known.
        """
        wait_ms = self._options.publish_timeout_ms
        request = message("PublishSinkRequest")(
            name=writer.name,
            namespace=self._options.namespace,
            id=epoch.sink[0],
            generation=epoch.sink[1],
            run_id=writer.run_id,
            epoch=writer.epoch,
            token=epoch.token,
            winners=epoch.winners,
            targets=[vars(target) for target in epoch.targets],
            input_rows=epoch.input_rows,
            input_digest=epoch.input_digest,
            offsets_hash=epoch.offsets_hash,
            accept_gap=self._options.accept_gap if self._options.accept_gap >= 0 else None,
            accept_difference=self._options.accept_difference,
            timeout_ms=wait_ms,
        )
        return bool(self._call("PublishSink", request, wait_ms + ANSWER_MS).finished)

    def abort(self, writer: Writer, sink: tuple[int, int], token: str) -> None:
        """Give up an attempt.

        Raises:
            BrokerError: its epoch is decided (`sink_published`), or the broker is not reachable.
        """
        self._call(
            "AbortSink", self._attempt("AbortSinkRequest", writer, sink, token), self._options.request_timeout_ms
        )

    def renew(self, writer: Writer, sink: tuple[int, int], token: str) -> None:
        """Keep an attempt from expiring.

        Raises:
            BrokerError: the broker is not reachable, or does not know the sink.
        """
        self._call(
            "RenewSink", self._attempt("RenewSinkRequest", writer, sink, token), self._options.request_timeout_ms
        )

    def _attempt(self, kind: str, writer: Writer, sink: tuple[int, int], token: str) -> Any:
        return message(kind)(
            name=writer.name,
            namespace=self._options.namespace,
            id=sink[0],
            generation=sink[1],
            epoch=writer.epoch,
            token=token,
        )

    def _call(self, method: str, request: Any, timeout_ms: int) -> Any:
        retry_ms = self._options.retry_deadline_ms
        return admin_call(self._options.address, method, request, timeout_ms=timeout_ms, retry_ms=retry_ms)


def _stream(item: Any) -> SinkStream:
    return SinkStream(item.name, item.partitions, item.max_record_bytes)
