"""`bascule produce` and `bascule consume`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import itertools
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from bascule.cli.options import DEFAULT_URL, DryRun, Output, Partition, Timeout, Url
from bascule.cli.output import OutputFormat, render
from bascule.cli.records import RecordFormat, record_writer
from bascule.cli.results import Produced
from bascule.client import Ack, Client, Receipt, Start, Stop, connect
from bascule.errors import StateError, UsageError

__all__ = ["consume", "produce"]

BATCH: Final = 4096
TIMEOUT: Final = 10.0

StreamName = Annotated[str, typer.Argument(help="Name of the stream.")]
Values = Annotated[list[str] | None, typer.Argument(help="Records; without any, standard input, one a line.")]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME=VALUE; repeatable.")]


class Acknowledged(StrEnum):
    """When a record counts as published."""

    LEADER = "leader"
    ALL = "all"
    NONE = "none"


def produce(
    stream: StreamName,
    values: Values = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read records from it, one a line.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[str | None, typer.Option(help="Each record is KEY, this text, VALUE.")] = None,
    header: Headers = None,
    partition: Partition = 0,
    ack: Annotated[Acknowledged, typer.Option(help="When a record counts as published.")] = Acknowledged.LEADER,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Publish records from arguments, a file, or standard input.

    Examples:
        bascule produce orders '{"id": 1}' '{"id": 2}'

        bascule produce orders --file orders.ndjson --header source=import
    """
    headers = _headers(header or [])
    if key is not None and key_separator is not None:
        raise UsageError("invalid_argument", "--key and --key-separator exclude each other")
    with ExitStack() as stack:
        client = stack.enter_context(connect(url, timeout=timeout, name="bascule-cli"))
        if values and file is not None:
            raise UsageError("invalid_argument", "records come from arguments or from --file, not from both")
        lines: Iterable[bytes] = (value.encode() for value in values or [])
        if not values:
            lines = _lines(stack.enter_context(file.open("rb")) if file else sys.stdin.buffer)
        pairs = (_pair(line, key, key_separator) for line in lines)
        if dry_run:
            _check_partition(client, stream, partition)
            count = sum(1 for _ in pairs)
            result = Produced(stream, partition, count, None, None, dry_run)
        else:
            result = _publish(client, stream, partition, ack=ack.value, headers=headers, pairs=pairs)
    render(result, output)


def _publish(
    client: Client,
    stream: str,
    partition: int,
    *,
    ack: Ack,
    headers: dict[str, bytes] | None,
    pairs: Iterator[tuple[bytes | None, bytes]],
) -> Produced:
    records = 0
    first: Receipt | None = None
    last: Receipt | None = None
    while chunk := list(itertools.islice(pairs, BATCH)):
        receipts = client.publish_many(
            stream,
            [value for _, value in chunk],
            keys=[key for key, _ in chunk],
            headers=None if headers is None else [headers] * len(chunk),
            partition=partition,
            ack=ack,
        )
        records += len(chunk)
        if receipts:
            first, last = first or receipts[0], receipts[-1]
    return Produced(
        stream,
        partition,
        records,
        None if first is None else first.offset,
        None if last is None else last.offset,
        False,
    )


def _lines(source: Iterable[bytes]) -> Iterator[bytes]:
    return (line.removesuffix(b"\n").removesuffix(b"\r") for line in source)


def _pair(line: bytes, key: str | None, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return (None if key is None else key.encode()), line
    before, found, value = line.partition(separator.encode())
    if not found:
        shown = line[:60].decode(errors="replace")
        raise UsageError("invalid_argument", f'the record "{shown}" has no key separator "{separator}"')
    return before, value


def _headers(items: list[str]) -> dict[str, bytes] | None:
    headers: dict[str, bytes] = {}
    for item in items:
        name, found, value = item.partition("=")
        if not found or not name:
            raise UsageError("invalid_argument", f'--header "{item}" is not NAME=VALUE')
        headers[name] = value.encode()
    return headers or None


def _check_partition(client: Client, stream: str, partition: int) -> None:
    partitions = len(client.get_stream(stream).partitions)
    if partition >= partitions:
        message = f"stream {stream} has {partitions} partitions, numbered from 0; there is no {partition}"
        raise StateError("partition_not_found", message, {"stream": stream, "partition": partition})


def consume(
    stream: StreamName,
    *,
    start: Annotated[
        str, typer.Option(help="earliest, latest, new, an offset, or a time like 2026-01-31T12:00:00Z.")
    ] = "new",
    stop: Annotated[
        str | None, typer.Option(help="latest, an offset or a time (both exclusive); left out = wait for more.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")] = None,
    partition: Partition = 0,
    output: Annotated[
        RecordFormat, typer.Option("--output", "-o", help="text prints values only.")
    ] = RecordFormat.TEXT,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Print records of one partition.

    Examples:
        bascule consume orders --start earliest --stop latest

        bascule consume orders --start 2026-01-31T12:00:00Z --count 10 --output ndjson
    """
    begin, end = _start(start), _stop(stop)
    left = count
    with connect(url, timeout=timeout, name="bascule-cli") as client, closing(record_writer(output)) as writer:
        subscription = client.subscribe(
            stream, partition=partition, start=begin, stop=end, batch_records=min(BATCH, count or BATCH)
        )
        with subscription:
            for batch in subscription:
                records = list(batch) if left is None else list(itertools.islice(batch, left))
                writer.write(records)
                sys.stdout.flush()
                left = None if left is None else left - len(records)
                if left == 0:
                    break


def _start(text: str) -> Start:
    if text in {"earliest", "latest", "new"}:
        return cast("Start", text)
    return _offset_or_time("--start", text, "earliest, latest, new")


def _stop(text: str | None) -> Stop:
    return cast("Stop", text) if text in {None, "latest"} else _offset_or_time("--stop", str(text), "latest")


def _offset_or_time(option: str, text: str, words: str) -> int | datetime:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f'{option} "{text}" is none of: {words}, an offset, a time like 2026-01-31T12:00:00Z'
        raise UsageError("invalid_argument", message) from None
