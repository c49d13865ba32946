"""`bascule produce`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bascule.cli.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.inputs import BATCH, InputFormat, Item, Source, items, of_arguments
from bascule.cli.options import DryRun, Output
from bascule.cli.output import OutputFormat, render
from bascule.cli.pace import Pace
from bascule.cli.results import Produced
from bascule.client import Ack, Client, Receipt
from bascule.client.refusals import no_partition
from bascule.errors import BrokerError, UsageError, error

__all__ = ["produce"]

Values = Annotated[list[str] | None, typer.Argument(help="Records; without any, --file or standard input.")]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME=VALUE; repeatable.")]
Choose = Callable[[Item], int]


class Acknowledged(StrEnum):
    """When a record counts as published."""

    LEADER = "leader"
    ALL = "all"
    NONE = "none"


class PartitionBy(StrEnum):
    """What picks a record's partition."""

    KEY = "key"
    ROUND_ROBIN = "round-robin"
    RECORD = "record"


File = Annotated[Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read records from it.")]
Form = Annotated[
    InputFormat,
    typer.Option("--format", help="text, base64, hex: one a line; raw: all is one record; the rest as consume."),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record that names none.")]
KeySeparator = Annotated[str | None, typer.Option(help="Each line is KEY, this text, VALUE.")]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Number, from 0. [default: 0]")]
By = Annotated[PartitionBy | None, typer.Option(help="Pick by the hash of the key, by turns, or as the record says.")]
AckPolicy = Annotated[Acknowledged, typer.Option(help="When a record counts as published.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Most records a second.")]


@connected()
def produce(
    connection: Connection,
    stream: StreamName,
    values: Values = None,
    *,
    file: File = None,
    form: Form = InputFormat.TEXT,
    key: Key = None,
    key_separator: KeySeparator = None,
    header: Headers = None,
    partition: Partition = None,
    partition_by: By = None,
    ack: AckPolicy = Acknowledged.LEADER,
    rate: Rate = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Publish records from arguments, a file, or standard input.

    Examples:
        bascule produce orders '{"id": 1}' '{"id": 2}'

        bascule produce orders --file orders.ndjson --format ndjson --partition-by key
    """
    _check(values, file=file, form=form, key=key, separator=key_separator)
    if partition is not None and partition_by is not None:
        raise UsageError("invalid_argument", "--partition and --partition-by exclude each other")
    source = Source(
        form,
        None if key is None else key.encode(),
        None if key_separator is None else key_separator.encode(),
        _headers(header or []),
    )
    with ExitStack() as stack:
        client = stack.enter_context(connection.open())
        choose = _chooser(client, stream, partition or 0, partition_by)
        if values:
            batches = of_arguments(values, source)
        else:
            if file is None and sys.stdin.isatty():
                sys.stderr.write("records, one a line; end with Ctrl-D\n")
            batches = items(stack.enter_context(file.open("rb")) if file else sys.stdin.buffer, source)
        publishing = _Publishing(client, stream, ack.value, Pace(rate), dry_run=dry_run)
        publishing.run(batches, choose)
    rows = publishing.rows(partition or 0)
    render(rows[0] if partition_by is None else rows, output)


@dataclass(slots=True)
class _Publishing:
    """Publishes batch by batch, and keeps what came of it by partition."""

    client: Client
    stream: str
    ack: Ack
    pace: Pace
    dry_run: bool = field(kw_only=True)
    done: dict[int, Produced] = field(default_factory=dict[int, Produced])

    def run(self, batches: Iterator[list[Item]], choose: Choose) -> None:
        """Publish all; records of one partition stay in order.

        Raises:
            BrokerError: of the first record that failed, saying how many are stored.
            UsageError: of the first record that cannot be read; those before it are published.
        """
        try:
            for batch in batches:
                step = self.pace.batch(BATCH)
                for begin in range(0, len(batch), step):
                    self._publish(batch[begin : begin + step], choose)
        except KeyboardInterrupt:
            sys.stderr.write(f"bascule: interrupted; {self._told()}\n")
            raise
        except BrokerError as failure:
            stored = sum(row.records for row in self.done.values())
            if not stored or self.dry_run:
                raise
            raise error(failure.code, f"{failure}; {self._told()}", {**failure.details, "before": stored}) from failure

    def rows(self, partition: int) -> list[Produced]:
        """What was published, by partition; `partition` stands there when nothing was."""
        found = [self.done[number] for number in sorted(self.done)]
        return found or [Produced(self.stream, partition, 0, None, None, self.dry_run)]

    def _told(self) -> str:
        return f"at least {sum(row.records for row in self.done.values())} records before it are published"

    def _publish(self, batch: Sequence[Item], choose: Choose) -> None:
        by_partition: dict[int, list[Item]] = {}
        for item in batch:
            by_partition.setdefault(choose(item), []).append(item)
        for partition, chosen in by_partition.items():
            self._publish_to(partition, chosen)
        self.pace.count(0 if self.dry_run else len(batch))

    def _publish_to(self, partition: int, batch: Sequence[Item]) -> None:
        first = last = None
        if not self.dry_run:
            receipts = self._send(partition, batch)
            if receipts:
                first, last = receipts[0].offset, receipts[-1].offset
        known = self.done.get(partition)
        if known is not None:
            first = known.first_offset if known.first_offset is not None else first
        records = len(batch) + (known.records if known is not None else 0)
        self.done[partition] = Produced(self.stream, partition, records, first, last, self.dry_run)

    def _send(self, partition: int, batch: Sequence[Item]) -> list[Receipt]:
        return self.client.publish_many(
            self.stream,
            [item.value for item in batch],
            keys=[item.key for item in batch],
            headers=[dict(item.headers) for item in batch] if any(item.headers for item in batch) else None,
            partition=partition,
            ack=self.ack,
        )


def _chooser(client: Client, stream: str, partition: int, by: PartitionBy | None) -> Choose:
    """What picks a record's partition; asks the broker how many there are.

    Raises:
        StateError: codes `stream_not_found`, `partition_not_found`.
    """
    count = len(client.get_stream(stream).partitions)
    turn = iter(range(sys.maxsize))

    def checked(number: int) -> int:
        if number >= count:
            raise no_partition(stream, number, count)
        return number

    match by:
        case PartitionBy.KEY:
            # as every Liftbridge client does it: CRC-32 of the key, of no bytes when there is none
            return lambda item: zlib.crc32(item.key or b"") % count
        case PartitionBy.ROUND_ROBIN:
            return lambda _: next(turn) % count
        case PartitionBy.RECORD:
            return lambda item: checked(item.partition or 0)
        case None:
            checked(partition)
            return lambda _: partition


_SEPARABLE: Final = frozenset({InputFormat.TEXT, InputFormat.BASE64, InputFormat.HEX})


def _check(values: Any, *, file: Path | None, form: InputFormat, key: str | None, separator: str | None) -> None:
    if key is not None and separator is not None:
        raise UsageError("invalid_argument", "--key and --key-separator exclude each other")
    if separator is not None and (form not in _SEPARABLE or not separator):
        text = f"--key-separator goes with --format {', '.join(sorted(_SEPARABLE))}, and is not empty"
        raise UsageError("invalid_argument", text)
    if values and file is not None:
        raise UsageError("invalid_argument", "records come from arguments or from --file, not from both")


def _headers(pairs: list[str]) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise UsageError("invalid_argument", f'--header "{pair}" is not NAME=VALUE')
        headers[name] = value.encode()
    return headers
