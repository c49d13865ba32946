"""Change events: the envelopes of Debezium and of Delta's change data feed become `op`, `before`, `after`, `ts`.

| Column | Debezium | Delta's change data feed |
|---|---|---|
| `op` | `op`: c, u, d, r (snapshot), t (truncate), m (message) | c, u, d for insert, update, delete |
| `before` | `before` | the row of `update_preimage` and `delete`; else null |
| `after` | `after` | the row of `insert` and `update_postimage`; else null |
| `ts` | `ts_ms`: when the connector processed the change | `_commit_timestamp` |

A feed has an update as two events. JSON of Debezium may have its schema around it (`{"schema": …, "payload": …}`).
"""

from typing import TYPE_CHECKING, Final

from bascule.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    from bascule.pipeline.model.decoders import Envelope

__all__ = ["EVENT", "change_event", "event_of_variant", "json_envelope", "unwrapped"]

EVENT: Final = ("op", "before", "after", "ts")
"""The columns of a change event."""
_CHANGE, _VERSION, _COMMITTED = "_change_type", "_commit_version", "_commit_timestamp"
_DEBEZIUM: Final = ("op", "before", "after", "ts_ms")


def json_envelope(envelope: "Envelope", row: "StructType") -> "StructType":
    """The columns of JSON events, from those of one row."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType  # noqa: PLC0415 - heavy

    if envelope == "deltaChangeFeed":
        own = [StructField(_CHANGE, StringType()), StructField(_COMMITTED, StringType())]
        return StructType([*row.fields, *own])
    payload = StructType(
        [
            StructField("op", StringType()),
            StructField("before", row),
            StructField("after", row),
            StructField("ts_ms", LongType()),
        ]
    )
    return StructType([*payload.fields, StructField("payload", payload)])


def unwrapped(envelope: "Envelope", data: "Column") -> "Column":
    """A parsed JSON event without the schema around it."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    if envelope == "deltaChangeFeed":
        return data
    inner = data["payload"]
    return F.when(inner.isNotNull(), F.struct(*(inner[name].alias(name) for name in _DEBEZIUM))).otherwise(
        F.struct(*(data[name].alias(name) for name in _DEBEZIUM))
    )


def change_event(envelope: "Envelope", data: "Column", kind: "DataType", where: str) -> "Column":
    """The struct of `EVENT` of a decoded event; its `op` is null if the value is not an event.

    Args:
        envelope: which one.
        data: the decoded value.
        kind: its type.
        where: what has the type, for the error.

    Raises:
        UsageError: code `configuration_invalid`: the type lacks a field of the envelope.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy
    from pyspark.sql.types import StructType  # noqa: PLC0415 - heavy

    needed = _DEBEZIUM if envelope == "debezium" else (_CHANGE, _COMMITTED)
    names = kind.fieldNames() if isinstance(kind, StructType) else []
    if missing := [name for name in needed if name not in names]:
        message = f"{where}: the schema is not an envelope of {envelope}: it has no field {missing[0]}"
        raise UsageError("configuration_invalid", message)
    if envelope == "debezium":
        return F.struct(
            data["op"].cast("string").alias("op"),
            data["before"].alias("before"),
            data["after"].alias("after"),
            F.timestamp_millis(data["ts_ms"]).alias("ts"),
        )
    row = F.struct(*(data[name].alias(name) for name in names if name not in (_CHANGE, _VERSION, _COMMITTED)))
    return _delta(data[_CHANGE], row, data[_COMMITTED])


def event_of_variant(envelope: "Envelope", data: "Column") -> "Column":
    """The struct of `EVENT` of an event in a VARIANT, where `before` and `after` are VARIANT."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    def at(name: str, kind: str) -> "Column":
        inside = F.try_variant_get(data, f"$.payload.{name}", kind)
        return F.coalesce(inside, F.try_variant_get(data, f"$.{name}", kind))

    if envelope == "debezium":
        return F.struct(
            at("op", "string").alias("op"),
            _not_json_null(at("before", "variant")).alias("before"),
            _not_json_null(at("after", "variant")).alias("after"),
            F.timestamp_millis(at("ts_ms", "bigint")).alias("ts"),
        )
    change = F.try_variant_get(data, f"$.{_CHANGE}", "string")
    return _delta(change, data, F.try_variant_get(data, f"$.{_COMMITTED}", "string"))


def _not_json_null(value: "Column") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    return F.when(~F.is_variant_null(value), value)


def _delta(change: "Column", row: "Column", committed: "Column") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    text = committed.cast("string")
    time = F.coalesce(text.try_cast("timestamp"), F.timestamp_millis(text.try_cast("bigint")))
    return F.struct(
        F.when(change == "insert", "c")
        .when(change.isin("update_preimage", "update_postimage"), "u")
        .when(change == "delete", "d")
        .alias("op"),
        F.when(change.isin("update_preimage", "delete"), row).alias("before"),
        F.when(change.isin("insert", "update_postimage"), row).alias("after"),
        time.alias("ts"),
    )
