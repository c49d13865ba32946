"""What an Iceberg table records about epochs: properties of the table, changed by the commit that appends. Pure.

| Property | Value |
|---|---|
| `bascule.epoch.<query>/<target>` | last epoch of a writer: `epoch`, `run`, `token`, `rows`, `offsets`, `complete` |
| `bascule.target.<target>` | number of the query or the batch job that used a target name last |
| `bascule.covered.<stream>/<incarnation>/<partition>` | covered offsets: first, end (exclusive), number of the writer |
| `bascule.erased.<stream>/<incarnation>/<partition>` | rows erased by key: how many, least offset, end (exclusive) |

Values are decimal numbers, and JSON where there are several. Expiry of snapshots, compaction and rewriting of manifests
keep properties.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from bascule.errors import CorruptionError
from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.own_files import object_of
from bascule.lake.ranges import Covered, Erased, Source

_OWN: Final = "bascule."
HOLDS: Final = "bascule.holds"
"""Property of a table whose rows are not the records of streams: what they are, as JSON with `holds` and `keys`."""
_EPOCH: Final = f"{_OWN}epoch."
_TARGET: Final = f"{_OWN}target."
_COVERED: Final = f"{_OWN}covered."
_ERASED: Final = f"{_OWN}erased."


def state_of(properties: Mapping[str, str], epoch: Epoch) -> TableState:
    """What the properties of a table say about an epoch.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    last = _read(properties, f"{_EPOCH}{epoch.writer}", _recorded)
    target = _read(properties, f"{_TARGET}{epoch.writer.target}", int)
    return TableState(last, target, covered_of(properties, epoch.ranges or {}))


def is_marked(properties: Mapping[str, str]) -> bool:
    """Whether a query or a job has written to a table, or has created it for rows of keys."""
    return any(name.startswith(_OWN) for name in properties)


def covered_of(properties: Mapping[str, str], sources: Iterable[Source]) -> dict[Source, Covered]:
    """The offsets that a table covers, for those of `sources` that it has rows of.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    found = {source: _read(properties, _covered_name(source), _covered) for source in sources}
    return {source: each for source, each in found.items() if each is not None}


def erased_of(properties: Mapping[str, str], sources: Iterable[Source]) -> dict[Source, Erased]:
    """What was erased by key from a table, for those of `sources` that it has erased rows of.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    found = {source: _read(properties, f"{_ERASED}{_source_name(source)}", _erased) for source in sources}
    return {source: each for source, each in found.items() if each is not None}


def erased_changes(erased: Mapping[Source, Erased]) -> dict[str, str]:
    """The properties that the commit of an erasure sets; of each source all that was ever erased."""
    return {
        f"{_ERASED}{_source_name(source)}": json.dumps([each.rows, each.first, each.end])
        for source, each in erased.items()
    }


def sources_of(properties: Mapping[str, str]) -> frozenset[Source]:
    """All sources that a table records as covered, also those of earlier incarnations.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    found: set[Source] = set()
    for name in properties:
        if not name.startswith(_COVERED):
            continue
        stream, *numbers = name.removeprefix(_COVERED).rsplit("/", 2)
        try:
            incarnation, partition = map(int, numbers)
        except ValueError as cause:
            raise CorruptionError(
                "damaged",
                f"the table's property {name} must end with /incarnation/partition, two numbers: remove the property",
                {"property": name},
            ) from cause
        found.add(Source(stream, incarnation, partition))
    return frozenset(found)


def changes(decision: Append, epoch: Epoch) -> dict[str, str]:
    """The properties that the commit of an epoch sets."""
    found = {
        f"{_EPOCH}{epoch.writer}": json.dumps(asdict(decision.recorded)),
        f"{_TARGET}{epoch.writer.target}": str(epoch.writer.owner),
    }
    for source, each in decision.covered.items():
        found[_covered_name(source)] = json.dumps([each.first, each.end, each.writer])
    return found


def holds_of(properties: Mapping[str, str]) -> Mapping[str, Any]:
    """What a row of a table is, if it is not a record: `holds`, `keys`; empty = it is one.

    Raises:
        CorruptionError: the property is not as it was written.
    """
    return _read(properties, HOLDS, object_of) or {}


def summary(epoch: Epoch) -> dict[str, str]:
    """What the snapshot of an epoch shows in the table's history."""
    return {
        "bascule.query": epoch.writer.query_id,
        "bascule.target": epoch.writer.target,
        "bascule.epoch": str(epoch.number),
        "bascule.ranges": json.dumps(epoch.shown_ranges(), ensure_ascii=False),
    }


def _covered_name(source: Source) -> str:
    return f"{_COVERED}{_source_name(source)}"


def _source_name(source: Source) -> str:
    return f"{source.stream}/{source.incarnation}/{source.partition}"


def _recorded(text: str) -> Recorded:
    return Recorded(**json.loads(text))


def _covered(text: str) -> Covered:
    return Covered(*json.loads(text))


def _erased(text: str) -> Erased:
    return Erased(*json.loads(text))


def _read(properties: Mapping[str, str], name: str, decode: Any) -> Any:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return decode(text)
    except (ValueError, TypeError) as cause:
        message = f"the table property {name} is not valid: {cause}; restore it from an older version of the table"
        raise CorruptionError("damaged", message, {"property": name}) from cause
