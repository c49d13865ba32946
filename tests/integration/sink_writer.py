"""Writes to sinks of a whole broker as the tasks and the driver of a Spark query do, without Spark."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from bascule.spark.connection import flight_client, from_flight
from bascule.spark.connection_options import parse_address
from bascule.spark.sink.calls import Epoch, OpenedSink, SinkCalls, Target
from bascule.spark.sink.checking import DIGEST_MODULUS
from bascule.spark.sink.identity import Writer
from bascule.spark.sink.options import parse_sink_options
from pyarrow import flight

QUERY, RUN = "0b9d0e2c-5f0a-4c53-9d6c-0d6f4f0f2a11", "5c8e9a34-0a1b-4f6e-8a57-1f2e3d4c5b6a"

Piece = Mapping[str, Any]
"""The answer for one piece: stream, partition, incarnation, rows, digest."""


@dataclass
class SinkWriter:
    """One run of a query that writes to one sink.

    Attributes:
        address: of the broker, as the option of the sink.
        stream: that every row is for.
        sink: what the last `open` answered.
    """

    address: str
    stream: str = "orders"
    name: str = "copy"
    run: str = RUN
    publish_timeout_ms: int = 20_000
    sink: OpenedSink = field(default_factory=lambda: OpenedSink(0, 0, None, ()))

    def open(self) -> OpenedSink:
        """Make this run the sink's current one."""
        self.sink = self._calls().open(self._writer(0), (self.stream,))
        return self.sink

    def stage(self, rows: Iterable[pa.RecordBatch], *, epoch: int = 0, task: int = 0, **changes: Any) -> list[Piece]:
        """Stage record batches as one task, in one call.

        Args:
            rows: at least one batch, all of one schema.
            epoch: of the query.
            task: its attempt is 64 times its number.
            changes: keys of the command, in place of those of this writer.

        Raises:
            BrokerError: as the broker answered.
        """
        staged = {"sink": self.sink.id, "generation": self.sink.generation, "epoch": epoch, "token": token(epoch)}
        command = {"stream": self.stream, "stage": {**staged, "task": task, "attempt": 64 * task}, **changes}
        return [{"stream": self.stream, **answer} for answer in put(self.address, command, rows)]

    def publish(self, pieces: Iterable[Piece], *, epoch: int = 0, tasks: int = 1) -> bool:
        """Publish what tasks 0 to `tasks` - 1 staged; whether all rows are readable already."""
        found = merged(pieces)
        digest = sum(int(target.digest, 16) for target in found) % DIGEST_MODULUS
        named = (self.sink.id, self.sink.generation)
        winners = tuple(64 * task for task in range(tasks))
        rows = sum(target.rows for target in found)
        published = Epoch(named, token(epoch), winners, tuple(found), rows, f"{digest:032x}", "")
        return self._calls().publish(self._writer(epoch), published)

    def abort(self, epoch: int = 0) -> None:
        """Give the attempt up."""
        self._calls().abort(self._writer(epoch), (self.sink.id, self.sink.generation), token(epoch))

    def renew(self, epoch: int = 0) -> None:
        """Keep the attempt from expiring."""
        self._calls().renew(self._writer(epoch), (self.sink.id, self.sink.generation), token(epoch))

    def _writer(self, epoch: int) -> Writer:
        return Writer("foreach", "kept", self.name, QUERY, self.run, epoch)

    def _calls(self) -> SinkCalls:
        given = {"address": self.address, "stream": self.stream, "sinkId": self.name, "retryDeadlineMs": "5000"}
        options = {**given, "publishTimeoutMs": str(self.publish_timeout_ms)}
        return SinkCalls(parse_sink_options(options, is_stream=False))


def put(address: str, command: Mapping[str, Any], rows: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """One DoPut; its answers.

    Raises:
        BrokerError: as the broker answered.
    """
    batches = iter(rows)
    first = next(batches)
    answers: list[dict[str, Any]] = []
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    try:
        writer, reader = flight_client(parse_address(address)).do_put(descriptor, first.schema)
        with writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            while (answer := reader.read()) is not None:
                answers.append(json.loads(answer.to_pybytes()))
    except Exception as failure:
        raise from_flight(failure) from failure
    return answers


def token(epoch: int) -> str:
    """The token of this process's attempt to write an epoch."""
    return f"{epoch:08x}" * 4


def merged(pieces: Iterable[Piece]) -> list[Target]:
    """Rows and digests by partition."""
    found: dict[tuple[str, int, int], tuple[int, int]] = {}
    for piece in pieces:
        key = (piece["stream"], piece["partition"], piece["incarnation"])
        rows, digest = found.get(key, (0, 0))
        found[key] = (rows + piece["rows"], (digest + int(piece["digest"], 16)) % DIGEST_MODULUS)
    return [Target(*key, rows, f"{digest:032x}") for key, (rows, digest) in sorted(found.items())]


def batch(values: Iterable[bytes], **columns: list[Any]) -> pa.RecordBatch:
    """Rows with these values, and other columns by name."""
    arrays = {name: pa.array(column) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({"value": pa.array(list(values), pa.binary()), **arrays})
