"""The offset document of a streaming query, which is stored in its checkpoint.

```json
{"namespace": "default",
 "packing": {"maxPartitions": 0, "maxRecords": 0, "minPartitions": 0, "slots": 2},
 "streams": {"orders": {"0": {"first": 0, "incarnation": 7, "link": 2309737967, "next": 118,
                              "timestamp_ns": 1764032400000000000}}},
 "version": 2}
```

Spark compares documents as text: keys are sorted, values are integers and strings, the shape is always the same.
`first` is where the query began to read this incarnation of the partition, so that the range of one that appears in a
later document is known without asking the broker; `incarnation` shows that a stream was deleted and created again;
`link` and `timestamp_ns` identify the record before `next` (`specs/formats/flight.md`), so that a log that was replaced
by an older copy is noticed even when it has grown past `next` since; -1 = unknown. `packing` makes a replayed
micro-batch have the same tasks after options changed. Version 1, without `link` and `timestamp_ns`, is still read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from bascule.errors import StateError
from bascule.spark.planning import Packing, Range

VERSION: Final = 2
READABLE: Final = (1, 2)
UNKNOWN: Final = -1
"""Unknown link or timestamp."""

Key = tuple[str, int]
"""Stream and partition number."""


@dataclass(frozen=True)
class Predecessor:
    """Link and timestamp of the record before an offset; -1 = unknown."""

    link: int = UNKNOWN
    timestamp_ns: int = UNKNOWN

    def contradicts(self, other: "Predecessor") -> bool:
        """Whether these are certainly two different records."""
        pairs = ((self.link, other.link), (self.timestamp_ns, other.timestamp_ns))
        return any(UNKNOWN not in pair and pair[0] != pair[1] for pair in pairs)


@dataclass(frozen=True)
class Mark:
    """The next offset of one partition, and the record before it."""

    incarnation: int
    first: int
    next: int
    before: Predecessor = Predecessor()

    def identified(self, found: Predecessor) -> "Mark":
        """A copy with the broker's data about the record before it; known values are not replaced by unknown ones."""
        return self if found.link == UNKNOWN else replace(self, before=found)


Marks = Mapping[Key, Mark]


def to_document(namespace: str, marks: Marks, packing: Packing) -> dict[str, Any]:
    """The document; equal arguments give equal text, in any order."""
    streams: dict[str, dict[str, dict[str, int]]] = {}
    for (stream, partition), mark in sorted(marks.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        entry = {
            "first": mark.first,
            "incarnation": mark.incarnation,
            "link": mark.before.link,
            "next": mark.next,
            "timestamp_ns": mark.before.timestamp_ns,
        }
        streams.setdefault(stream, {})[str(partition)] = entry
    return {"namespace": namespace, "packing": packing.to_document(), "streams": streams, "version": VERSION}


def from_document(document: Mapping[str, Any], namespace: str) -> tuple[dict[Key, Mark], Packing]:
    """Marks and packing of a document.

    Raises:
        StateError: it was written by a newer version, for another namespace, or by something else.
    """
    version = document.get("version")
    if version not in READABLE:
        raise StateError(
            "failed_precondition",
            f"the checkpoint contains offsets of version {version!r}; this source reads 1 to {VERSION}",
        )
    if document.get("namespace") != namespace:
        raise StateError(
            "failed_precondition",
            f"the checkpoint belongs to namespace {document.get('namespace')!r}, the query reads {namespace!r}",
        )
    try:
        streams = cast("dict[str, dict[str, dict[str, int]]]", document["streams"])
        marks = {
            (stream, int(number)): _mark(entry, version)
            for stream, partitions in streams.items()
            for number, entry in partitions.items()
        }
        return marks, Packing.from_document(document["packing"])
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise StateError(
            "failed_precondition", f"the checkpoint contains no offsets of this source: {cause!r}"
        ) from cause


def _mark(entry: Mapping[str, int], version: int) -> Mark:
    mark = Mark(int(entry["incarnation"]), int(entry["first"]), int(entry["next"]))
    if version == 1:
        return mark
    return replace(mark, before=Predecessor(int(entry["link"]), int(entry["timestamp_ns"])))


def ranges(start: Marks, end: Marks) -> list[Range]:
    """The ranges between two documents, in order. Depends on nothing else.

    A partition that `start` lacks, or has of another incarnation, is read from where the query began to read it.
    """
    found: list[Range] = []
    for (stream, partition), mark in sorted(end.items(), key=lambda item: item[0]):
        before = start.get((stream, partition))
        begin = before.next if before is not None and before.incarnation == mark.incarnation else mark.first
        if mark.next > begin:
            history = None if mark.before.link == UNKNOWN else (mark.next, mark.before.link)
            found.append(Range(stream, partition, begin, mark.next, mark.incarnation, history))
    return found
