"""`bascule produce`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeAlias

import typer

from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output
from bascule.cli.records.pace import Pace
from bascule.cli.records.record_reader import BATCH, InputFormat, Item, Source, items, of_arguments
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import Produced
from bascule.client import Ack, Client
from bascule.client.tooling import no_partition
from bascule.errors import BrokerError, UsageError, error

__all__ = ["produce"]

Values = Annotated[list[str] | None, typer.Argument(help="Records; without any, --file or standard input.")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="NAME=VALUE; repeatable, also with one name.")
]


class Acknowledged(StrEnum):
    """When a record counts as published."""

    LEADER = "leader"
    ALL = "all"
    NONE = "none"


class PartitionBy(StrEnum):
    """What chooses a record's partition."""

    KEY = "key"
    ROUND_ROBIN = "round-robin"
    RECORD = "record"


class Kept(StrEnum):
    """Fields of the input that are stored with a record."""

    PARTITION = "partition"
    SUBJECT = "subject"
    TIME = "time"


_STANDARD_INPUT: Final = Path("-")


def _as_input(text: str) -> Path:
    """A file that exists, or `-`."""
    file = Path(text)  # Typer's own `allow_dash` does not work for paths
    if file != _STANDARD_INPUT:
        if not file.exists():
            raise typer.BadParameter(f"file {text!r} does not exist.")
        if file.is_dir():
            raise typer.BadParameter(f"file {text!r} is a directory.")
    return file


File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", parser=_as_input, metavar="PATH", help="Read records from it; - stands for standard input."
    ),
]
Form = Annotated[
    InputFormat,
    typer.Option(
        "--format", help="text, base64, hex: one per line; raw: the whole input is one record; others as in consume."
    ),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record without a key.")]
KeySeparator = Annotated[str | None, typer.Option(help="Each line is KEY, this text, VALUE.")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Number, from 0, for all records. [default: by key]")
]
By = Annotated[
    PartitionBy | None,
    typer.Option(
        help="By the hash of the key (without a key, many records at a time); round robin; or as the record says."
    ),
]
Keep = Annotated[
    list[Kept] | None,
    typer.Option(help="Also store this field of ndjson, json and csv; time becomes the origin time. Repeatable."),
]
Null = Annotated[str | None, typer.Option(help="With text, base64 and hex: this text stands for a null value.")]
AckPolicy = Annotated[Acknowledged, typer.Option(help="When a record counts as published.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Maximum records per second.")]


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
    keep: Keep = None,
    null: Null = None,
    ack: AckPolicy = Acknowledged.LEADER,
    rate: Rate = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Publish records from arguments, a file, or standard input.

    Examples:
        bascule produce orders '{"id": 1}' '{"id": 2}'

        bascule produce orders --file orders.ndjson --format ndjson
    """
    _check(values, file=file, form=form, key=key, separator=key_separator, null=null)
    kept = frozenset(keep or ())
    if kept and form not in _DOCUMENTS:
        text = f"--keep works with --format {', '.join(sorted(_DOCUMENTS))}, not with {form}"
        raise UsageError("invalid_argument", text)
    partition_by = PartitionBy.RECORD if Kept.PARTITION in kept and partition_by is None else partition_by
    if partition is not None and partition_by is not None:
        raise UsageError("invalid_argument", "--partition, --partition-by and --keep partition cannot be combined")
    source = Source(
        form,
        None if key is None else key.encode(),
        None if key_separator is None else key_separator.encode(),
        _headers(header or []),
        None if null is None else null.encode(),
        keeps_subject=Kept.SUBJECT in kept,
        keeps_time=Kept.TIME in kept,
    )
    with ExitStack() as stack:
        client = stack.enter_context(connection.open())
        count = len(client.get_stream(stream).partitions)
        choice = _choice(stream, count, partition, partition_by)
        batches = of_arguments(values, source) if values else items(_input(file, stack), source)
        publishing = _Publishing(client, stream, ack.value, Pace(rate), choice, count, dry_run=dry_run)
        publishing.run(batches)
    is_one = partition is not None or (partition_by is None and count == 1)
    rows = publishing.rows(partition or 0)
    render(rows[0] if is_one else rows, output)


Choice: TypeAlias = int | Literal["round_robin", "record"] | None
"""A partition for all records, or how one is chosen; `None` = by key, as in the SDK."""


@dataclass(slots=True)
class _Publishing:
    """Publishes batch by batch, and collects the results by partition."""

    client: Client
    stream: str
    ack: Ack
    pace: Pace
    choice: Choice
    partitions: int
    """Number of partitions of the stream."""
    dry_run: bool = field(kw_only=True)
    done: dict[int | None, Produced] = field(default_factory=dict[int | None, Produced])

    def run(self, batches: Iterator[list[Item]]) -> None:
        """Publish all; records of one partition stay in order.

        Raises:
            BrokerError: of the first record that failed, with the number of stored records.
            UsageError: of the first record that cannot be read; those before it are published.
        """
        try:
            for batch in batches:
                step = self.pace.batch(BATCH)
                for begin in range(0, len(batch), step):
                    self._publish(batch[begin : begin + step])
        except KeyboardInterrupt:
            sys.stderr.write(f"bascule: interrupted; {self._stored_text()}\n")
            raise
        except BrokerError as failure:
            stored = sum(row.records for row in self.done.values())
            if not stored or self.dry_run:
                raise
            raise error(
                failure.code, f"{failure}; {self._stored_text()}", {**failure.details, "before": stored}
            ) from failure

    def rows(self, partition: int) -> list[Produced]:
        """The result by partition; if nothing was published, one row for `partition`."""
        found = [
            self.done[number]
            for number in sorted(self.done, key=lambda number: sys.maxsize if number is None else number)
        ]
        return found or [Produced(self.stream, partition, 0, None, None, self.dry_run)]

    def _stored_text(self) -> str:
        return f"at least {sum(row.records for row in self.done.values())} records before it are published"

    def _publish(self, batch: Sequence[Item]) -> None:
        partitions = [self._checked(item.partition) for item in batch] if self.choice == "record" else None
        if self.dry_run:
            self._count_dry(batch, partitions)
            return
        receipts = self.client.publish_many(
            self.stream,
            [item.value for item in batch],
            keys=[item.key for item in batch],
            headers=[item.headers for item in batch] if any(item.headers for item in batch) else None,
            partition=None if self.choice == "record" else self.choice,
            partitions=partitions,
            subjects=[item.subject for item in batch] if any(item.subject for item in batch) else None,
            origin_times_ns=[item.time_ns for item in batch]
            if any(item.time_ns is not None for item in batch)
            else None,
            ack=self.ack,
        )
        for receipt in receipts:
            self._count(receipt.partition, receipt.offset)
        if not receipts:
            self._count_unacknowledged(batch, partitions)
        self.pace.count(len(batch))

    def _checked(self, number: int | None) -> int:
        if number is None:
            text = (
                "a record names no partition: add one to each, or leave out --partition-by record and --keep partition"
            )
            raise UsageError("invalid_argument", text)
        if number >= self.partitions:
            raise no_partition(self.stream, number, self.partitions)
        return number

    def _count(self, partition: int | None, offset: int | None, records: int = 1) -> None:
        known = self.done.get(partition)
        before = 0 if known is None else known.records
        first = offset if known is None or known.first_offset is None else known.first_offset
        self.done[partition] = Produced(self.stream, partition, before + records, first, offset, self.dry_run)

    def _count_dry(self, batch: Sequence[Item], partitions: list[int] | None) -> None:
        """Count where records would go; the partition of records without a key is not known in advance."""
        if self.choice == "round_robin":
            begun = sum(row.records for row in self.done.values())
            partitions = [(begun + index) % self.partitions for index in range(len(batch))]
        self._count_unacknowledged(batch, partitions)

    def _count_unacknowledged(self, batch: Sequence[Item], partitions: list[int] | None) -> None:
        for index, item in enumerate(batch):
            self._count(self._expected(item) if partitions is None else partitions[index], None)

    def _expected(self, item: Item) -> int | None:
        """The partition of a record; `None` = chosen by the publisher's round robin."""
        if isinstance(self.choice, int):
            return self.choice
        if self.partitions == 1:
            return 0
        # as in all Liftbridge clients
        return zlib.crc32(item.key) % self.partitions if item.key and self.choice is None else None


def _choice(stream: str, count: int, partition: int | None, by: PartitionBy | None) -> Choice:
    """The rule that chooses the partition of a record.

    Raises:
        StateError: code `partition_not_found`.
    """
    if partition is not None and partition >= count:
        raise no_partition(stream, partition, count)
    match by:
        case PartitionBy.ROUND_ROBIN:
            return "round_robin"
        case PartitionBy.RECORD:
            return "record"
        case PartitionBy.KEY | None:
            return partition


_DOCUMENTS: Final = frozenset({InputFormat.NDJSON, InputFormat.JSON, InputFormat.CSV})
_SEPARABLE: Final = frozenset({InputFormat.TEXT, InputFormat.BASE64, InputFormat.HEX})


def _input(file: Path | None, stack: ExitStack) -> BinaryIO:
    """The file, which `stack` closes, or standard input."""
    if file is not None and file != _STANDARD_INPUT:
        return stack.enter_context(file.open("rb"))
    if sys.stdin.isatty():
        sys.stderr.write("records, one a line; end with Ctrl-D\n")
    return sys.stdin.buffer


def _check(
    values: Any, *, file: Path | None, form: InputFormat, key: str | None, separator: str | None, null: str | None
) -> None:
    if key is not None and separator is not None:
        raise UsageError("invalid_argument", "--key and --key-separator cannot be combined")
    if separator is not None and (form not in _SEPARABLE or not separator):
        text = f"--key-separator works with --format {', '.join(sorted(_SEPARABLE))}, and must not be empty"
        raise UsageError("invalid_argument", text)
    if null is not None and form not in _SEPARABLE:
        raise UsageError(
            "invalid_argument", f"--null works with --format {', '.join(sorted(_SEPARABLE))}, not with {form}"
        )
    if values and file is not None:
        raise UsageError("invalid_argument", "records come from arguments or from --file, not from both")


def _headers(pairs: list[str]) -> list[tuple[str, bytes]]:
    headers: list[tuple[str, bytes]] = []
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise UsageError("invalid_argument", f'--header "{pair}" is not NAME=VALUE')
        headers.append((name, value.encode()))
    return headers
