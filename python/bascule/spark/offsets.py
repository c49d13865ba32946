"""The offset document of a streaming query: what its checkpoint holds.

```json
{"namespace": "default",
 "packing": {"maxPartitions": 0, "maxRecords": 0, "minPartitions": 0, "slots": 2},
 "streams": {"orders": {"0": {"first": 0, "incarnation": 7, "next": 118}}},
 "version": 1}
```

Spark compares documents as text: keys are sorted, values are integers and strings, the shape is always the same.
`first` is where the query began to read the partition, so that the range of one that appears in a later document is
known without asking the broker; `incarnation` tells a stream that was deleted and created again; `packing` makes a
replayed micro-batch have the same tasks after options changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from bascule.errors import StateError
from bascule.spark.planning import Packing, Range

VERSION: Final = 1

Key = tuple[str, int]
"""Stream and partition number."""


@dataclass(frozen=True)
class Mark:
    """How far one partition was read."""

    incarnation: int
    first: int
    next: int


Marks = Mapping[Key, Mark]


def to_document(namespace: str, marks: Marks, packing: Packing) -> dict[str, Any]:
    """The document; equal arguments give equal text, whatever their order."""
    streams: dict[str, dict[str, dict[str, int]]] = {}
    for (stream, partition), mark in sorted(marks.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        entry = {"first": mark.first, "incarnation": mark.incarnation, "next": mark.next}
        streams.setdefault(stream, {})[str(partition)] = entry
    return {"namespace": namespace, "packing": packing.to_document(), "streams": streams, "version": VERSION}


def from_document(document: Mapping[str, Any], namespace: str) -> tuple[dict[Key, Mark], Packing]:
    """Marks and packing of a document.

    Raises:
        StateError: it was written by a newer version, for another namespace, or by something else.
    """
    version = document.get("version")
    if version != VERSION:
        raise StateError(
            "failed_precondition", f"the checkpoint holds offsets of version {version!r}; this source reads {VERSION}"
        )
    if document.get("namespace") != namespace:
        raise StateError(
            "failed_precondition",
            f"the checkpoint belongs to namespace {document.get('namespace')!r}, the query reads {namespace!r}",
        )
    try:
        streams = cast("dict[str, dict[str, dict[str, int]]]", document["streams"])
        marks = {
            (stream, int(number)): Mark(int(entry["incarnation"]), int(entry["first"]), int(entry["next"]))
            for stream, partitions in streams.items()
            for number, entry in partitions.items()
        }
        return marks, Packing.from_document(document["packing"])
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise StateError("failed_precondition", f"the checkpoint holds no offsets of this source: {cause!r}") from cause


def ranges(start: Marks, end: Marks) -> list[Range]:
    """What lies between two documents, in order. A function of nothing else."""
    found: list[Range] = []
    for (stream, partition), mark in sorted(end.items()):
        before = start.get((stream, partition))
        if before is not None:
            check_incarnation(stream, partition, before.incarnation, mark.incarnation)
        begin = mark.first if before is None else before.next
        if mark.next > begin:
            found.append(Range(stream, partition, begin, mark.next, mark.incarnation))
    return found


def check_incarnation(stream: str, partition: int, expected: int, actual: int) -> None:
    """Refuses offsets of a stream that was deleted and created again.

    Raises:
        StateError: code `incarnation_changed`.
    """
    if expected != actual:
        raise StateError(
            "incarnation_changed",
            f"{stream}/{partition} has incarnation {actual}, the checkpoint was made for {expected}: the stream "
            "was deleted and created again; start the query with a new checkpoint",
            {"stream": stream, "partition": partition, "expected": expected, "actual": actual},
        )
