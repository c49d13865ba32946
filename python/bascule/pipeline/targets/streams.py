"""Streams as targets of a job, written by the sink of `bascule.spark`.

All streams of a job are targets of one sink, so that they get an epoch together: its rows and its dead letters.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import UsageError
from bascule.pipeline.dead_letters import DLQ_PREFIX, Origin
from bascule.pipeline.model.job import Job
from bascule.pipeline.model.streams import Stream
from bascule.spark.admin_calls import sdk_url
from bascule.spark.connection_options import NAMESPACE
from bascule.spark.sink.calls import SinkCalls
from bascule.spark.sink.options import IN_JOB, SinkOptions, parse_sink_options
from bascule.spark.sink.rows import check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["JobSink", "StreamTarget"]

logger = logging.getLogger("bascule.pipeline")

_HEADERS: Final = "array<struct<key: binary, value: binary, key_kind: int, value_kind: int>>"
_TYPES: Final = {
    "value": "binary",
    "key": "binary",
    "headers": _HEADERS,
    "subject": "string",
    "reply": "string",
    "id": "binary",
    "timestamp": "timestamp",
    "origin_time": "timestamp",
    "partition": "int",
}
"""Columns of rows for several streams, with their types."""
_LETTER_BYTES: Final = 64 << 20
"""`max_record_bytes` of a stream of dead letters that a job creates: the greatest, so that each letter fits."""
_RAW, _STRING = 1, 2  # kinds of headers


@dataclass(frozen=True)
class JobSink:
    """Writes epochs to the streams of a job.

    Attributes:
        name: of the job and of its sink.
        options: for `format("bascule")`, without those of an epoch.
        dead_letters: the stream of dead letters; empty = the job has none.
    """

    name: str
    options: dict[str, str]
    dead_letters: str = ""

    @classmethod
    def of(cls, job: Job) -> "JobSink":
        """The sink of a job.

        Raises:
            UsageError: an option is not valid.
        """
        source, sink = job.source_keys.parsed(), job.sink
        given = {
            "address": sink.address or job.source_keys.options().get("address"),
            "namespace": sink.namespace or source.namespace,
            "onOversize": sink.on_oversize,
            "onInvalid": sink.on_invalid,
            "onReplayDifference": sink.on_replay_difference,
            "takeOver": sink.take_over,
            IN_JOB: "true",
        }
        letters = job.dead_letters.stream if isinstance(job.dead_letters, Stream) else ""
        made = cls(job.name, {name: text for name, text in given.items() if text}, letters)
        made.parsed()
        return made

    def parsed(self, **more: str) -> SinkOptions:
        """The options, checked.

        Raises:
            UsageError: one is not valid.
        """
        return parse_sink_options({**self.options, "sinkId": self.name, **more}, is_stream=False)

    def partitions(self, streams: Sequence[str]) -> dict[str, int]:
        """Number of partitions by stream, of those that exist.

        Raises:
            BrokerError: the right to publish is missing, or the broker is not reachable.
        """
        found = SinkCalls(self.parsed()).streams(streams)
        return {name: item.partitions for name, item in found.items()}

    def write(self, parts: "Sequence[tuple[StreamTarget, DataFrame]]", origin: Origin) -> None:
        """Write rows of one epoch, all or nothing over all streams. An epoch that they have is not written again.

        Args:
            parts: targets with the rows of each.
            origin: of the epoch.

        Raises:
            UsageError: the rows have a column that no stream takes.
            BrokerError: the sink refuses the epoch, or a stream cannot be created.
            Exception: of Spark, for refusals in tasks; then nothing was written.
        """
        self._create([target for target, _ in parts])
        if len(parts) == 1:
            ((target, frame),) = parts
            self._save(frame, origin, stream=target.section.stream)
            return
        for target, frame in parts:
            target.check(frame.schema)
        frames = [_uniform(frame, target.section.stream) for target, frame in parts]
        names = json.dumps([target.section.stream for target, _ in parts])
        self._save(reduce(lambda one, other: one.unionByName(other), frames), origin, streams=names)

    def _save(self, frame: "DataFrame", origin: Origin, **more: str) -> None:
        options = {**self.options, **more}
        if origin.range_id:
            options["idempotencyKey"] = f"{self.name}-{origin.range_id}"
            options.pop("takeOver", None)
        else:
            options |= {"sinkId": self.name, "checkpointLocation": origin.checkpoint}
        frame.write.format("bascule").mode("append").options(**options).save()

    def _create(self, targets: "Sequence[StreamTarget]") -> None:
        there = self.partitions([target.section.stream for target in targets])
        missing = [target.section for target in targets if target.section.stream not in there]
        if not missing:
            return
        options = self.parsed()
        if options.namespace != NAMESPACE.default:
            text = f"stream {options.namespace}/{missing[0].stream} does not exist: create it first"
            raise UsageError("configuration_invalid", text, {"stream": missing[0].stream})
        import bascule  # noqa: PLC0415 - heavy
        from bascule.client import StreamOptions  # noqa: PLC0415 - heavy

        url, tls = sdk_url(options.address)
        with bascule.connect(url, tls=tls) as client:
            for section in missing:
                limit = _LETTER_BYTES if section.stream == self.dead_letters else None
                made = StreamOptions(partitions=section.partitions, max_record_bytes=limit)
                client.create_stream(section.stream, options=made, exist_ok=True)
                logger.warning("stream %s was created with %d partitions", section.stream, section.partitions)


@dataclass(frozen=True)
class StreamTarget:
    """One stream. Its rows are written together with those of the job's other streams, by `JobSink.write`."""

    section: Stream
    sink: JobSink

    @property
    def name(self) -> str:
        """Its name in the job."""
        return self.section.name

    @property
    def place(self) -> str:
        """Stream and address."""
        options = self.sink.parsed()
        namespace = "" if options.namespace == NAMESPACE.default else f"{options.namespace}/"
        host = options.address.partition("://")[2].partition("?")[0]
        return f"stream {namespace}{self.section.stream} at {host}"

    def exists(self) -> bool:
        """Whether the stream is there."""
        return self.section.stream in self.sink.partitions([self.section.stream])

    def difference(self, schema: "StructType") -> str | None:
        """See `JobTarget`."""
        try:
            self.check(schema)
        except UsageError as refused:
            return str(refused)
        return None

    def rejects(self, schema: "StructType") -> str | None:
        """See `JobTarget`: a stream has no columns that could change, so rows never go to the dead letters instead."""
        del schema

    def write(self, frame: "DataFrame", origin: Origin) -> None:
        """See `JobTarget`."""
        self.sink.write([(self, frame)], origin)

    def check(self, schema: "StructType") -> None:
        """Refuse rows that cannot be records.

        Raises:
            UsageError: a column is not known or has another type, or `value` is missing.
        """
        if any(field.name.lower() == "stream" for field in schema.fields):
            text = f"the result has a column stream, and all rows go to the stream {self.section.stream}: leave it out"
            raise UsageError("configuration_invalid", text, {"column": "stream"})
        check_columns(schema, self.sink.parsed(stream=self.section.stream))

    def letters(self, dead: "DataFrame") -> "DataFrame":
        """Dead letters as records: the record as it was, with headers that say where it is from and why it is here."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

        own = _headers(F.col("headers"), dead.schema["headers"].dataType)
        names = [name for name in dead.columns if name not in ("key", "value", "headers")]
        said = F.array(*(_said(name, F.col(name), dead.schema[name].dataType) for name in names))
        headers = F.concat(
            F.coalesce(own, F.array().cast(_HEADERS)), F.filter(said, lambda one: one["value"].isNotNull())
        )
        return dead.select("key", "value", headers.alias("headers"), F.col("timestamp").alias("origin_time"))


def _said(name: str, column: "Column", kind: "DataType") -> "Column":
    """A header with the text of a column; its value is null where the column has none."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    if kind.typeName() == "array":
        text = F.when(F.size(column) > 0, F.to_json(column))
    elif kind.typeName() == "timestamp":
        text = F.unix_micros(column).cast("string")
    else:
        text = column.cast("string")
    title = F.lit(f"{DLQ_PREFIX}{name}").cast("binary")
    kinds = (F.lit(_STRING).alias("key_kind"), F.lit(_STRING).alias("value_kind"))
    return F.struct(title.alias("key"), text.cast("binary").alias("value"), *kinds)


def _headers(column: "Column", kind: "DataType") -> "Column":
    """Headers of any form that the sink takes, in the form with kinds."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415 - heavy

    if isinstance(kind, MapType):
        fields, key_type = ["key", "value"], kind.keyType.typeName()
        column = F.map_entries(column)
    else:
        assert isinstance(kind, ArrayType)  # checked before
        assert isinstance(kind.elementType, StructType)
        fields = kind.elementType.fieldNames()
        key_type = kind.elementType[fields[0]].dataType.typeName()

    def entry(one: "Column") -> "Column":
        default = {"key_kind": _STRING if key_type == "string" else _RAW, "value_kind": _RAW}
        kinds = [
            F.coalesce(one[name].cast("int"), F.lit(usual)) if name in fields else F.lit(usual)
            for name, usual in default.items()
        ]
        pairs = [one[name].cast("binary").alias(name) for name in ("key", "value")]
        return F.struct(*pairs, *(found.alias(name) for found, name in zip(kinds, default, strict=True)))

    return F.transform(column, entry)


def _uniform(frame: "DataFrame", stream: str) -> "DataFrame":
    """The rows with a column for their stream, and with the columns and types of rows for several streams."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    kinds = {field.name.lower(): field.dataType for field in frame.schema.fields}
    columns: list[Any] = [F.lit(stream).alias("stream")]
    for name, kind in _TYPES.items():
        if name not in kinds:
            column = F.lit(None)
        elif name == "headers":
            column = _headers(F.col(name), kinds[name])
        else:
            column = F.col(name)
        columns.append(column.cast(kind).alias(name))
    return frame.select(*columns)
