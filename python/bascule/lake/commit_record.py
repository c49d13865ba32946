"""The commit records of a Parquet table: JSON documents, numbered from 0, each created once and never changed. Pure.

`_bascule/commits/<20 digits>.json`:

| Key | Content |
|---|---|
| `version` | number of the record |
| `time_ms` | when it was made, ms since 1970 |
| `files` | files of the epoch: `name`, `staged` (where it was before), `bytes`, `rows`, `values` (partition values) |
| `epochs` | by writer (`<query>/<target>`) its last epoch: `epoch`, `run`, `token`, `rows`, `offsets`, `complete` |
| `targets` | by target name the number of the query or the batch job that used it last |
| `covered` | by stream, incarnation and partition: `[first, end, writer]`, see `bascule.lake.ranges.Covered` |
| `removed` | names of files of earlier records that are deleted |
| `erased` | by stream, incarnation and partition: `[rows, first, end]`, see `bascule.lake.ranges.Erased` |

A record of an erasure lists files of earlier records again, by the same `name`: what is staged replaces them. `epochs`,
`targets`, `covered` and `erased` are those of the whole table, so that the newest record says all that a commit needs.
`_bascule/last.json` names a version up to which all files are in their places; it may be behind.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.files import DataFile
from bascule.lake.layout import OWN_FOLDER
from bascule.lake.own_files import object_of, valid
from bascule.lake.ranges import Covered, Erased, Source

FORMAT: Final = 1
TABLE: Final = f"{OWN_FOLDER}/table.json"
"""Columns and partitioning; made when the table is created."""
LAST: Final = f"{OWN_FOLDER}/last.json"
STAGED: Final = f"{OWN_FOLDER}/staged"
COMMITS: Final = f"{OWN_FOLDER}/commits"


@dataclass(frozen=True)
class CommitRecord:
    """One record, decoded. See the table above."""

    version: int
    time_ms: int
    files: tuple[DataFile, ...]
    epochs: Mapping[str, Recorded] = field(default_factory=dict[str, Recorded])
    targets: Mapping[str, int] = field(default_factory=dict[str, int])
    covered: Mapping[Source, Covered] = field(default_factory=dict[Source, Covered])
    removed: tuple[str, ...] = ()
    erased: Mapping[Source, Erased] = field(default_factory=dict[Source, Erased])


def record_name(version: int) -> str:
    """The file of a record."""
    return f"{COMMITS}/{version:020d}.json"


def state_of(record: CommitRecord | None, epoch: Epoch) -> TableState:
    """What a table says about an epoch, by its newest record; None = it has none."""
    if record is None:
        return TableState()
    covered = {source: record.covered[source] for source in epoch.ranges or {} if source in record.covered}
    return TableState(record.epochs.get(str(epoch.writer)), record.targets.get(epoch.writer.target), covered)


def following(
    before: CommitRecord | None, decision: Append, epoch: Epoch, files: Sequence[DataFile], time_ms: int
) -> CommitRecord:
    """The record that appends an epoch after `before`."""
    earlier = before or CommitRecord(-1, 0, ())
    return CommitRecord(
        version=earlier.version + 1,
        time_ms=time_ms,
        files=tuple(files),
        epochs={**earlier.epochs, str(epoch.writer): decision.recorded},
        targets={**earlier.targets, epoch.writer.target: epoch.writer.owner},
        covered={**earlier.covered, **decision.covered},
        erased=earlier.erased,
    )


def erasing(
    before: CommitRecord,
    files: Sequence[DataFile],
    removed: Sequence[str],
    erased: Mapping[Source, Erased],
    time_ms: int,
) -> CommitRecord:
    """The record that replaces and deletes files of records up to `before`; `erased` are the rows that this loses."""
    return replace(
        before,
        version=before.version + 1,
        time_ms=time_ms,
        files=tuple(files),
        removed=tuple(removed),
        erased={**before.erased, **added_to(before.erased, erased)},
    )


def added_to(before: Mapping[Source, Erased], erased: Mapping[Source, Erased]) -> dict[Source, Erased]:
    """What a table has erased of the sources of an erasure, after it."""
    return {source: before[source] + each if source in before else each for source, each in erased.items()}


def live_files(records: Iterable[CommitRecord]) -> list[DataFile]:
    """The data files of a table after all its records, in the order of their first commits."""
    found: dict[str, DataFile] = {}
    for record in records:
        for name in record.removed:
            found.pop(name, None)
        found |= {file.name: file for file in record.files}
    return list(found.values())


def encode(record: CommitRecord) -> bytes:
    """The record as a document."""
    files = [
        {"name": each.name, "staged": each.staged, "bytes": each.bytes, "rows": each.rows, "values": dict(each.values)}
        for each in record.files
    ]
    epochs = {writer: asdict(each) for writer, each in record.epochs.items()}
    covered = {source: [each.first, each.end, each.writer] for source, each in record.covered.items()}
    erased = {source: [each.rows, each.first, each.end] for source, each in record.erased.items()}
    document = {
        "format": FORMAT,
        "version": record.version,
        "time_ms": record.time_ms,
        "files": files,
        "epochs": epochs,
        "targets": dict(record.targets),
        "covered": _nested(covered),
        "removed": list(record.removed),
        "erased": _nested(erased),
    }
    return json.dumps(document, sort_keys=True).encode()


def decode(content: bytes, name: str) -> CommitRecord:
    """A record from its document.

    Raises:
        CorruptionError: it is not one; `name` is its file.
    """
    with valid(name, "restore it from a backup"):
        document = object_of(content)
        if document["format"] != FORMAT:
            raise ValueError(f"it has format {document['format']}, this version reads {FORMAT}")
        files = tuple(
            DataFile(each["name"], each["staged"], tuple(each["values"].items()), each["bytes"], each["rows"])
            for each in document["files"]
        )
        epochs = {writer: Recorded(**each) for writer, each in document["epochs"].items()}
        covered = {source: Covered(*numbers) for source, numbers in _flat(document["covered"])}
        erased = {source: Erased(*numbers) for source, numbers in _flat(document.get("erased", {}))}
        numbers = document["version"], document["time_ms"]
        removed = tuple(document.get("removed", ()))
        return CommitRecord(*numbers, files, epochs, document["targets"], covered, removed, erased)


def _nested(numbers: Mapping[Source, list[int]]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """By stream, incarnation and partition."""
    found: dict[str, dict[str, dict[str, list[int]]]] = {}
    for source, each in sorted(numbers.items()):
        partitions = found.setdefault(source.stream, {}).setdefault(str(source.incarnation), {})
        partitions[str(source.partition)] = each
    return found


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[Source, list[int]]]:
    for stream, incarnations in document.items():
        for incarnation, partitions in incarnations.items():
            for partition, numbers in partitions.items():
                yield Source(stream, int(incarnation), int(partition)), numbers
