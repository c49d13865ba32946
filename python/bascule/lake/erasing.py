"""Erases the records of a key from an archive, and publishes tombstones of the key to the stream.

Each step is one commit of the table, which leaves what the table covers as it is and records how many rows were erased
and between which offsets; the key is recorded nowhere. So an erasure that was interrupted is completed by the same call
again. It ends when a search finds no such record in the newest version.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bascule.lake.conflicts import MOST_CONFLICTS, pause, too_many
from bascule.lake.disk_errors import disk_errors
from bascule.lake.lake_table import LakeTable
from bascule.lake.maintenance import open_existing
from bascule.lake.matching import KeyFilter, Match, check_pages, erased_of, find
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Erased, Source
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.client import Client

__all__ = ["ErasedPartition", "Erasure", "Tombstone", "erase"]

_OLD_VERSIONS: Final = {
    "delta": "older versions of the table, until bascule.lake.vacuum deletes their files; their log entries name the "
    "least and the greatest subject of each file",
    "iceberg": "older snapshots of the table, until bascule.lake.expire and the removal of orphan files by the engine "
    "that owns the table",
    "parquet": "readers that have opened the old files",
}
_COPIES: Final = (
    "backups and copies of the table",
    "consumers, queries and tables that have read the records, and streams that they were written to",
)


@dataclass(frozen=True, slots=True)
class ErasedPartition:
    """Rows of one incarnation of a partition: `rows` of them, with offsets in `[first, end)`."""

    incarnation: int
    partition: int
    rows: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record with the key and a null value in a partition of the stream. `offset`: None = of a dry run."""

    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased; of a dry run, what would be.

    Attributes:
        table: its path, or its name in a catalog.
        stream: its name.
        rows: number of rows.
        files: number of data files with such rows.
        partitions: where the rows were.
        tombstones: in partitions of the stream.
        not_reached: where such records may still be, one sentence each.
        dry_run: nothing was changed.
    """

    table: str
    stream: str
    rows: int
    files: int
    partitions: tuple[ErasedPartition, ...]
    tombstones: tuple[Tombstone, ...]
    not_reached: tuple[str, ...]
    dry_run: bool


def erase(  # noqa: PLR0913 - all by name
    options: ArchiveOptions,
    *,
    stream: str,
    key: bytes,
    subject: str | None = None,
    client: "Client | None" = None,
    dry_run: bool = False,
) -> Erasure:
    """Erase every record of a key from an archive, and publish a tombstone of the key to the stream.

    Tombstones come first: one in the partition of the key, and one in each partition that the archive has records of
    the key from. Then rows are erased until none is found, also of earlier incarnations of the stream. Queries may
    append meanwhile. The offsets of erased rows stay covered. The same call again completes one that was interrupted;
    it publishes tombstones again, which changes nothing.

    All files of the stream are read: their keys, and of those with such records everything.

    Args:
        options: of the table, one of `bascule.spark.archive`; its partitioning need not be given.
        stream: whose records.
        key: 1 byte or more.
        subject: only records with this subject. There are no tombstones then, because compaction looks at the key
            alone: a tombstone would remove the records of all subjects.
        client: of the broker with the stream; None = no tombstone is published.
        dry_run: change nothing; count.

    Raises:
        UsageError: `key` is empty, `subject` is given with a client, or the table has no column `key` or `subject`.
        StateError: there is no such table or stream, or a property of the table prevents it.
        CorruptionError: a file is missing or cannot be read; nothing of it was erased.
        UnavailableError: other writers committed first many times in a row.
    """
    if not key:
        raise usage("key is empty: records without a key are not erased by it")
    if subject is not None and client is not None:
        raise usage(
            f"subject is {subject!r}, and a tombstone would remove the key's records of all subjects from stream "
            f"{stream}: erase from the archive alone (client=None, --no-tombstone), or without subject"
        )
    wanted = KeyFilter(stream, key, subject)
    table = open_existing(options, stream if options.has_table_per_stream else "")
    with disk_errors(options.path):
        table.check_erasable()
        handle, matches = _search(table, wanted, clean := set[str]())
        tombstones = () if client is None else _publish(client, wanted, matches, dry_run=dry_run)
        erased = erased_of(matches) if dry_run else _erase_all(table, wanted, (handle, matches), clean)
    partitions = tuple(
        ErasedPartition(source.incarnation, source.partition, each.rows, each.first, each.end)
        for source, each in sorted(erased.items())
    )
    return Erasure(
        table.uri,
        stream,
        sum(each.rows for each in partitions),
        len(matches),
        partitions,
        tombstones,
        (*_stream_not_reached(stream, tombstones), _OLD_VERSIONS[options.table_format], *_COPIES),
        dry_run,
    )


def _search(table: LakeTable, wanted: KeyFilter, clean: set[str]) -> tuple[object, list[Match]]:
    """A handle of the newest version, and its files with such records; those without are added to `clean`."""
    handle, newest = table.opened()
    wanted.check_columns(table.uri, newest.columns)
    matches: list[Match] = []
    for file in newest.files:
        if file.name in clean:
            continue
        match = find(table.storage, file, wanted)
        if match is None:
            clean.add(file.name)
        else:
            check_pages(table.storage, file)
            matches.append(match)
    return handle, matches


def _erase_all(
    table: LakeTable, wanted: KeyFilter, found: tuple[object, list[Match]], clean: set[str]
) -> dict[Source, Erased]:
    """Erase until a search finds no such record."""
    erased: dict[Source, Erased] = {}
    handle, matches = found
    conflicts = 0
    while matches:
        done = table.erase(handle, wanted, matches)
        if done is None:
            if conflicts == MOST_CONFLICTS:
                raise too_many(table.uri)
            pause(conflicts)
            conflicts += 1
        else:
            conflicts = 0
            for source, each in done.items():
                erased[source] = erased[source] + each if source in erased else each
        handle, matches = _search(table, wanted, clean)
    return erased


def _publish(client: "Client", wanted: KeyFilter, matches: Sequence[Match], *, dry_run: bool) -> tuple[Tombstone, ...]:
    count = len(client.get_stream(wanted.stream).partitions)
    partitions = {source.partition for match in matches for source in match.offsets if source.partition < count}
    partitions.add(zlib.crc32(wanted.key) % count)
    if dry_run:
        return tuple(Tombstone(partition, None) for partition in sorted(partitions))
    receipts = [
        client.publish(wanted.stream, None, key=wanted.key, partition=partition) for partition in sorted(partitions)
    ]
    return tuple(Tombstone(receipt.partition, receipt.offset) for receipt in receipts)


def _stream_not_reached(stream: str, tombstones: Sequence[Tombstone]) -> list[str]:
    if not tombstones:
        return [
            f"stream {stream} itself: nothing is published to it, and records that are archived later are not erased"
        ]
    places = ", ".join(f"{each.partition}/{each.offset}" for each in tombstones if each.offset is not None)
    behind = f" (partition/offset {places})" if places else ""
    later = f"records that are archived later, and the tombstones, which have the key{behind}"
    return [
        f"stream {stream}, until compaction removes the records; if it is not compacted, until retention does",
        f"{later}: erase again without tombstones when the archive has them",
    ]
