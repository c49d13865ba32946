"""The decoding stage of a job: the columns of the source become those of the view `source`.

Bytes that are decoded stay in columns whose names begin with `__raw_`, for dead letters. Each decoded part has an error
column, null where there is none. See `failures`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bascule.errors import UsageError
from bascule.pipeline.decode.decoder import PythonDecoder
from bascule.pipeline.decode.envelopes import EVENT, change_event, event_of_variant, json_envelope, unwrapped
from bascule.pipeline.decode.failures import ERROR_DDL
from bascule.pipeline.decode.resolve import python_decoder
from bascule.pipeline.decode.stage import decoded_name, with_decoded
from bascule.pipeline.decode.text import (
    SCRATCH,
    Parsed,
    checked,
    columns_of,
    json_value,
    text_value,
    variant_value,
)
from bascule.pipeline.model.decoders import Avro, Decode, Decoder, Envelope, Json, Protobuf, Raw, String, Variant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["PARTS", "RAW", "Decoding", "error_name", "raw_name"]

PARTS: Final = ("key", "value", "headers")
RAW: Final = "__raw_"
"""Begin of the names of columns that have the bytes as they were."""


def raw_name(part: str) -> str:
    """The column with the bytes of `key`, `value` or `headers` as they were."""
    return f"{RAW}{part}"


def error_name(part: str) -> str:
    """The error column of `key`, `value` or `headers`."""
    return f"{part}_error"


@dataclass(frozen=True)
class Decoding:
    """The decoders of a job, resolved: schema files are read, registries were asked."""

    decode: Decode
    python: Mapping[str, PythonDecoder]

    @classmethod
    def of(cls, decode: Decode, stream: str | None) -> "Decoding":
        """Resolve the decoders.

        Args:
            decode: the section of the job.
            stream: the only stream that is read, or None.

        Raises:
            UsageError: see `python_decoder`; an envelope for keys.
            BrokerError: of a registry.
        """
        python: dict[str, PythonDecoder] = {}
        for part, decoder in (("key", decode.key), ("value", decode.value)):
            if isinstance(decoder, (Avro, Protobuf)):
                python[part] = python_decoder(decoder, stream, part)
        return cls(decode, python)

    @property
    def decoded_parts(self) -> tuple[str, ...]:
        """The parts that are not raw."""
        return tuple(part for part in PARTS if not isinstance(getattr(self.decode, part), Raw))

    def apply(self, frame: "DataFrame") -> "DataFrame":
        """`frame`, of the source's columns, with the decoded ones in their place, `__raw_…` and `…_error`."""
        if self.python:
            frame = with_decoded(frame, self.python)
        for part in PARTS:
            if part in frame.columns:
                frame = self._part(frame, part)
        return frame.drop(*(decoded_name(part) for part in self.python))

    def _part(self, frame: "DataFrame", part: str) -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

        decoder: Decoder = getattr(self.decode, part)
        frame = frame.withColumn(raw_name(part), F.col(part))
        if isinstance(decoder, Raw):
            return frame
        if part == "headers":
            return _headers(frame, decoder)
        frame, parsed = _parsed(frame, part, decoder)
        data, error = checked(parsed, decoder.format) if parsed else _from_stage(part)
        frame = frame.withColumns({part: data, error_name(part): error}).drop(*SCRATCH)
        envelope: Envelope | None = getattr(decoder, "envelope", None)
        return frame if envelope is None else _events(frame, envelope, decoder)


def _parsed(frame: "DataFrame", part: str, decoder: Decoder) -> tuple["DataFrame", Parsed | None]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    raw = F.col(part)
    match decoder:
        case String():
            return frame, text_value(raw)
        case Variant():
            return frame, variant_value(raw)
        case Json():
            columns = columns_of(decoder.schema_.text(), f"decode.{part}.schema")
            if decoder.envelope is not None:
                columns = json_envelope(decoder.envelope, columns)
            return json_value(frame, raw, columns)
        case _:
            return frame, None


def _from_stage(part: str) -> tuple["Column", "Column"]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    return F.col(decoded_name(part))["data"], F.col(decoded_name(part))["error"].cast(ERROR_DDL)


def _events(frame: "DataFrame", envelope: Envelope, decoder: Decoder) -> "DataFrame":
    """The columns of change events instead of `value`. A value that is not an event is a decode error."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    value = F.col("value")
    if isinstance(decoder, Variant):
        event = event_of_variant(envelope, value)
    else:
        if isinstance(decoder, Json):
            frame = frame.withColumn("value", unwrapped(envelope, value))
        event = change_event(envelope, value, frame.schema["value"].dataType, "decode.value")
    error = F.col(error_name("value"))
    taken = {name.lower() for name in frame.columns} & set(EVENT)
    if taken:
        raise UsageError("configuration_invalid", f"decode.value: the source has a column {min(taken)} already")
    frame = frame.withColumn("__event", event)
    is_event = F.col("__event")["op"].isNotNull()
    undefined = F.col(raw_name("value")).isNotNull() & error.isNull() & ~is_event
    wrong = F.struct(
        F.lit("NotAChangeEvent").alias("class"),
        F.lit(f"the value is not a change event of {envelope}: it has no operation").alias("message"),
        F.lit(decoder.format).alias("decoder"),
        F.lit(None).cast("int").alias("schema_id"),
    ).cast(ERROR_DDL)
    frame = frame.withColumn(error_name("value"), F.when(undefined, wrong).otherwise(error))
    columns = {name: F.when(is_event, F.col("__event")[name]) for name in EVENT}
    return frame.withColumns(columns).drop("value", "__event")


def _headers(frame: "DataFrame", decoder: Decoder) -> "DataFrame":
    """Headers with decoded values. An error of one is the error of all."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    function = variant_value if isinstance(decoder, Variant) else text_value

    def pair(header: "Column") -> "Column":
        data, error = checked(function(header["value"]), decoder.format)
        return F.struct(header["key"].alias("key"), data.alias("value"), error.alias("error"))

    frame = frame.withColumn("__headers", F.transform(F.col("headers"), pair))
    errors = F.filter(F.col("__headers"), lambda header: header["error"].isNotNull())
    first = F.try_element_at(errors, F.lit(1))["error"]
    values = F.transform(
        F.col("__headers"), lambda header: F.struct(header["key"].alias("key"), header["value"].alias("value"))
    )
    frame = frame.withColumn(error_name("headers"), first)
    decoded = F.when(F.col(error_name("headers")).isNull(), values)
    return frame.withColumn("headers", decoded).drop("__headers")
