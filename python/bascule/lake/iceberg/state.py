"""What an Iceberg table records about epochs: properties of the table, changed by the commit that appends. Pure.

| Property | Value |
|---|---|
| `bascule.epoch.<query>/<target>` | last epoch of a writer: `epoch`, `run`, `token` and `rows` |
| `bascule.target.<target>` | number of the query or the batch job that used a target name last |
| `bascule.covered.<stream>/<incarnation>/<partition>` | covered offsets: first, end (exclusive), number of the writer |

Values are decimal numbers, and JSON where there are several. Expiry of snapshots, compaction and rewriting of manifests
keep properties.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bascule.errors import CorruptionError
from bascule.lake.epochs import Append, Epoch, Recorded, TableState
from bascule.lake.ranges import Covered, Source

_EPOCH: Final = "bascule.epoch."
_TARGET: Final = "bascule.target."
_COVERED: Final = "bascule.covered."


def state_of(properties: Mapping[str, str], epoch: Epoch) -> TableState:
    """What the properties of a table say about an epoch.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    last = _read(properties, f"{_EPOCH}{epoch.writer}", _recorded)
    target = _read(properties, f"{_TARGET}{epoch.writer.target}", int)
    return TableState(last, target, covered_of(properties, epoch.ranges or {}))


def covered_of(properties: Mapping[str, str], sources: Iterable[Source]) -> dict[Source, Covered]:
    """The offsets that a table covers, for those of `sources` that it has rows of.

    Raises:
        CorruptionError: a property is not as this module writes it.
    """
    found = {source: _read(properties, _covered_name(source), _covered) for source in sources}
    return {source: each for source, each in found.items() if each is not None}


def changes(decision: Append, epoch: Epoch) -> dict[str, str]:
    """The properties that the commit of an epoch sets."""
    recorded = decision.recorded
    numbers = {"epoch": recorded.epoch, "run": recorded.run, "token": recorded.token, "rows": recorded.rows}
    found = {
        f"{_EPOCH}{epoch.writer}": json.dumps(numbers),
        f"{_TARGET}{epoch.writer.target}": str(epoch.writer.owner),
    }
    for source, each in decision.covered.items():
        found[_covered_name(source)] = json.dumps([each.first, each.end, each.writer])
    return found


def summary(epoch: Epoch) -> dict[str, str]:
    """What the snapshot of an epoch shows in the table's history."""
    return {
        "bascule.query": epoch.writer.query_id,
        "bascule.target": epoch.writer.target,
        "bascule.epoch": str(epoch.number),
        "bascule.ranges": json.dumps(epoch.shown_ranges()),
    }


def _covered_name(source: Source) -> str:
    return f"{_COVERED}{source.stream}/{source.incarnation}/{source.partition}"


def _recorded(text: str) -> Recorded:
    return Recorded(**json.loads(text))


def _covered(text: str) -> Covered:
    return Covered(*json.loads(text))


def _read(properties: Mapping[str, str], name: str, decode: Any) -> Any:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return decode(text)
    except (ValueError, TypeError) as cause:
        message = f"the table property {name} is not valid: {cause}; restore it from an older version of the table"
        raise CorruptionError("damaged", message, {"property": name}) from cause
