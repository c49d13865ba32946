"""The sink table: what the data plane needs of the sinks. Pure. Its shape is in `specs/formats/seam.md`."""

from collections.abc import Mapping
from typing import Any

from bascule.metadata import StreamKey
from bascule.metadata.sinks import Published, Sink, attempt_ids

Sinks = Mapping[StreamKey, Sink]


def table_changes(before: Sinks, after: Sinks) -> dict[str, list[Any]]:
    """Rows of the sinks that are new or changed, and ids of those that are gone; both in order of identity."""
    changed = [row(after[key]) for key in sorted(after) if after[key] != before.get(key)]
    kept = {sink.id for sink in after.values()}
    removed = [before[key].id for key in sorted(before) if before[key].id not in kept]
    return {"sinks": changed, "removed": removed}


def row(sink: Sink) -> dict[str, Any]:
    """The row of a sink."""
    return {
        "id": sink.id,
        "name": f"{sink.namespace}/{sink.name}",
        "owner": sink.owner,
        "generation": sink.generation,
        "last_epoch": sink.last_epoch,
        "producer": sink.producer_id,
        "quota_bytes": sink.quota_bytes,
        "expired": [{"generation": item.generation, "epoch": item.epoch, "token": item.token} for item in sink.expired],
        "link": _link(sink.last) if sink.last is not None and sink.last.waiting else None,
    }


def _link(last: Published) -> dict[str, Any]:
    targets = [
        {"incarnation": item.incarnation, "rows": item.rows, "digest": item.digest, "from_offset": item.from_offset}
        for _, item in last.waiting
    ]
    return {
        "generation": last.generation,
        "epoch": last.epoch,
        "token": last.token,
        "ordinal": last.ordinal,
        "winners": attempt_ids(last.winners),
        "targets": targets,
    }
