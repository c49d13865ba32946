"""What the driver and the tasks of a query do that writes to a sink, without Spark."""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from bascule.spark.sink.calls import Epoch, OpenedSink, SinkCalls, Target
from bascule.spark.sink.checking import DIGEST_MODULUS, check
from bascule.spark.sink.identity import Writer
from bascule.spark.sink.options import parse_sink_options
from bascule.spark.sink.tasks import TaskMessage
from bascule.spark.sink.writers import merged
from pyarrow import flight

from tests.integration.sink_writer import put

TaskRows = Mapping[int, Sequence[bytes]]
"""Values of one task, by target partition."""
TIMEOUT_MS = 60_000
_SCHEMA = pa.schema([("value", pa.binary()), ("partition", pa.int32())])


def rows(epoch: int, *, tasks: int = 2, partitions: int = 2, count: int = 100, size: int = 0) -> list[TaskRows]:
    """The rows of an epoch, all different, by task."""
    return [
        {
            partition: [(b"%d/%d/%d/%d" % (epoch, task, partition, i)).ljust(size, b".") for i in range(count)]
            for partition in range(partitions)
        }
        for task in range(tasks)
    ]


@dataclass
class Run:
    """One run of a query.

    Attributes:
        address: of the broker.
        stream: that it writes to, and the name of its sink.
        query_id: kept by the query's checkpoint.
        run_id: of this run.
        publish_timeout_ms: how long a publish waits for its link.
    """

    address: str
    stream: str
    query_id: str = field(default_factory=lambda: str(uuid4()))
    run_id: str = field(default_factory=lambda: str(uuid4()))
    publish_timeout_ms: int = TIMEOUT_MS

    @property
    def calls(self) -> SinkCalls:
        """The calls of its driver."""
        options = {"address": self.address, "stream": self.stream, "sinkId": self.stream}
        options["publishTimeoutMs"] = str(self.publish_timeout_ms)
        return SinkCalls(parse_sink_options(options, is_stream=True))

    def writer(self, epoch: int) -> Writer:
        """The writer of an epoch."""
        return Writer("stream", "kept", self.stream, self.query_id, self.run_id, epoch)

    def attempt(self, epoch: int, tasks: Sequence[TaskRows]) -> "Attempt":
        """Open the sink for an attempt at an epoch; nothing is staged."""
        return Attempt(self, epoch, list(tasks), self.calls.open(self.writer(epoch), (self.stream,)))

    def write(self, epoch: int, tasks: Sequence[TaskRows]) -> None:
        """Stage and publish an epoch."""
        attempt = self.attempt(epoch, tasks)
        attempt.stage()
        assert attempt.publish(), "the epoch is decided and not linked in time"


@dataclass
class Attempt:
    """One attempt at an epoch.

    Attributes:
        sink: as every task sees it.
        messages: of the tasks that are staged.
        token: of the attempt.
        number: of the next call that stages.
    """

    run: Run
    epoch: int
    tasks: list[TaskRows]
    sink: OpenedSink
    messages: list[TaskMessage] = field(default_factory=list[TaskMessage])
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    number: int = 64

    def stage(self) -> None:
        """Stage the rows of the tasks that are not staged yet, each under a number of its own.

        Raises:
            BrokerError: those of a task were not stored.
        """
        for task in range(len(self.messages), len(self.tasks)):
            number, self.number = self.number, self.number + 1
            targets = self.put(task, number)
            self._add(task, number, targets, is_replay=False)

    def verify(self) -> None:
        """Count the rows of an epoch that is decided already, as its tasks do then."""
        for task in range(len(self.tasks)):
            self._add(task, 0, (), is_replay=True)

    def _add(self, task: int, number: int, targets: tuple[Target, ...], *, is_replay: bool) -> None:
        rows, digest = 0, 0
        for batch in _batches(self.tasks[task]):
            checked = check(batch, self.run.stream)
            rows, digest = rows + checked.rows, (digest + checked.digest) % DIGEST_MODULUS
        named, writer = (self.sink.id, self.sink.generation), self.run.writer(self.epoch)
        self.messages.append(
            TaskMessage(writer, named, self.token, task, number, targets, rows, digest, is_replay=is_replay)
        )

    def put(self, task: int, number: int) -> tuple[Target, ...]:
        """Stage the rows of a task under a number.

        Raises:
            BrokerError: they were not stored.
        """
        named = {"sink": self.sink.id, "generation": self.sink.generation, "epoch": self.epoch, "token": self.token}
        command = {"stream": self.run.stream, "stage": {**named, "task": task, "attempt": number}}
        answers = put(self.run.address, command, _batches(self.tasks[task]))
        return tuple(
            Target(self.run.stream, each["partition"], each["incarnation"], each["rows"], each["digest"])
            for each in answers
        )

    def publish(self, offsets_hash: str = "") -> bool:
        """Decide the epoch; whether all rows are readable already. The same call again gives the same answer.

        Raises:
            BrokerError: it is not decided.
        """
        return self.run.calls.publish(self.run.writer(self.epoch), self._epoch(offsets_hash))

    def abort(self) -> None:
        """Give it up.

        Raises:
            BrokerError: it is decided.
        """
        self.run.calls.abort(self.run.writer(self.epoch), (self.sink.id, self.sink.generation), self.token)

    def _epoch(self, offsets_hash: str) -> Epoch:
        return Epoch(
            sink=(self.sink.id, self.sink.generation),
            token=self.token,
            winners=tuple(message.attempt for message in self.messages if not message.is_replay),
            targets=merged(self.messages),
            input_rows=sum(message.rows for message in self.messages),
            input_digest=f"{sum(message.digest for message in self.messages) % DIGEST_MODULUS:032x}",
            offsets_hash=offsets_hash,
        )


def _batches(rows: TaskRows) -> Iterator[pa.RecordBatch]:
    for partition, values in rows.items():
        columns = [pa.array(values, pa.binary()), pa.array([partition] * len(values), pa.int32())]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def stored(address: str, stream: str, partitions: int = 2) -> list[list[bytes]]:
    """All values of each partition, in order."""
    found: list[list[bytes]] = []
    with flight.FlightClient(f"grpc://{address}") as client:
        for partition in range(partitions):
            ticket = json.dumps({"stream": stream, "partition": partition, "columns": ["value"]})
            found.append(client.do_get(flight.Ticket(ticket.encode())).read_all()["value"].to_pylist())
    return found


def expected(*epochs: Sequence[TaskRows], partitions: int = 2) -> list[list[bytes]]:
    """What `stored` returns after these epochs: tasks in order, their rows in order."""
    return [
        [value for tasks in epochs for task in tasks for value in task.get(partition, ())]
        for partition in range(partitions)
    ]
