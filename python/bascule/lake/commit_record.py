"""The commit records of a Parquet table: JSON documents, numbered from 0, each created once and never changed. Pure.

`_bascule/commits/<20 digits>.json`:

| Key | Content |
|---|---|
| `version` | number of the record |
| `time_ms` | when it was made, ms since 1970 |
| `files` | files of the epoch: `name`, `staged` (where it was before), `bytes`, `rows`, `values` (partition values) |
| `epochs` | by writer (`<query>/<target>`) its last epoch: `epoch`, `run`, `token`, `rows` |
| `targets` | by target name the number of the query or the batch job that used it last |
| `covered` | by stream, incarnation and partition: `[first, end, writer]`, see `bascule.lake.ranges.Covered` |

`epochs`, `targets` and `covered` are those of the whole table, so that the newest record says all that a commit needs.
`_bascule/last.json` names a version up to which all files are in their places; it may be behind.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bascule.errors import CorruptionError
from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.files import DataFile
from bascule.lake.layout import OWN_FOLDER
from bascule.lake.ranges import Covered, Source

FORMAT: Final = 1
TABLE: Final = f"{OWN_FOLDER}/table.json"
"""Columns and partitioning; made when the table is created."""
LAST: Final = f"{OWN_FOLDER}/last.json"
STAGED: Final = f"{OWN_FOLDER}/staged"


@dataclass(frozen=True)
class CommitRecord:
    """One record, decoded. See the table above."""

    version: int
    time_ms: int
    files: tuple[DataFile, ...]
    epochs: Mapping[str, Recorded] = field(default_factory=dict[str, Recorded])
    targets: Mapping[str, int] = field(default_factory=dict[str, int])
    covered: Mapping[Source, Covered] = field(default_factory=dict[Source, Covered])


def record_name(version: int) -> str:
    """The file of a record."""
    return f"{OWN_FOLDER}/commits/{version:020d}.json"


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
    )


def encode(record: CommitRecord) -> bytes:
    """The record as a document."""
    files = [
        {"name": each.name, "staged": each.staged, "bytes": each.bytes, "rows": each.rows, "values": dict(each.values)}
        for each in record.files
    ]
    epochs = {
        writer: {"epoch": each.epoch, "run": each.run, "token": each.token, "rows": each.rows}
        for writer, each in record.epochs.items()
    }
    covered: dict[str, dict[str, dict[str, list[int]]]] = {}
    for source, each in sorted(record.covered.items()):
        partitions = covered.setdefault(source.stream, {}).setdefault(str(source.incarnation), {})
        partitions[str(source.partition)] = [each.first, each.end, each.writer]
    document = {
        "format": FORMAT,
        "version": record.version,
        "time_ms": record.time_ms,
        "files": files,
        "epochs": epochs,
        "targets": dict(record.targets),
        "covered": covered,
    }
    return json.dumps(document, sort_keys=True).encode()


def decode(content: bytes, name: str) -> CommitRecord:
    """A record from its document.

    Raises:
        CorruptionError: it is not one; `name` is its file.
    """
    try:
        document: dict[str, Any] = json.loads(content)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}; this version reads {FORMAT}")  # noqa: TRY301
        files = tuple(
            DataFile(each["name"], each["staged"], tuple(each["values"].items()), each["bytes"], each["rows"])
            for each in document["files"]
        )
        epochs = {writer: Recorded(**each) for writer, each in document["epochs"].items()}
        covered = {
            Source(stream, int(incarnation), int(partition)): Covered(*numbers)
            for stream, incarnations in document["covered"].items()
            for incarnation, partitions in incarnations.items()
            for partition, numbers in partitions.items()
        }
        return CommitRecord(document["version"], document["time_ms"], files, epochs, document["targets"], covered)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptionError("damaged", f"{name} is not a valid commit record: {cause}", {"file": name}) from cause
