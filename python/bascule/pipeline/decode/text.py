"""Decoders that run in the JVM: text, JSON with known columns, and JSON of any shape as VARIANT."""

import uuid
from typing import TYPE_CHECKING, NamedTuple

from bascule.errors import UsageError
from bascule.pipeline.decode.failures import ERROR_DDL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["CORRUPT", "SCRATCH", "Parsed", "checked", "columns_of", "json_value", "text_value", "variant_value"]

CORRUPT = "__corrupt"
"""Field that Spark sets when JSON does not fit its columns."""


SCRATCH = ("__text", "__json", "__parsed")
"""Columns that decoding JSON adds for a while."""


class Parsed(NamedTuple):
    """A decoded column, and its error.

    Attributes:
        data: any value where there is an error.
        class_name: class of the error; null = none.
        message: one sentence; any value where there is no error.
    """

    data: "Column"
    class_name: "Column"
    message: "Column"


def text_value(raw: "Column") -> Parsed:
    """Bytes as text."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    text = F.try_validate_utf8(raw.cast("string"))
    return Parsed(
        text,
        F.when(raw.isNotNull() & text.isNull(), F.lit("InvalidUtf8")),
        F.lit("the bytes are not valid UTF-8"),
    )


def json_value(frame: "DataFrame", raw: "Column", columns: "StructType") -> tuple["DataFrame", Parsed]:
    """JSON as a struct of `columns`: missing fields are null, others are ignored, one of another type is an error.

    The frame returned has further columns (`SCRATCH`) that the result uses.

    With them Spark parses each value once, since it does not merge stages when that repeats work.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415 - heavy

    text, value, parsed = (F.col(name) for name in SCRATCH)
    schema = StructType([*columns.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    frame = frame.withColumn(SCRATCH[0], text_value(raw).data)
    frame = frame.withColumns({SCRATCH[1]: _one_value(text), SCRATCH[2]: F.from_json(text, schema, options)})
    kind = (
        F.when(raw.isNull(), F.lit(None))
        .when(text.isNull(), F.lit("InvalidUtf8"))
        .when(value.isNull(), F.lit("MalformedJson"))
        .when(~F.schema_of_variant(value).startswith("OBJECT"), F.lit("NotAnObject"))
        .when(parsed.isNull() | parsed[CORRUPT].isNotNull(), F.lit("TypeMismatch"))
    )
    return frame, Parsed(parsed.dropFields(CORRUPT), kind, _json_message(kind))


def variant_value(raw: "Column") -> Parsed:
    """JSON as VARIANT."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    text = text_value(raw)
    value = _one_value(text.data)
    kind = (
        F.when(raw.isNull(), F.lit(None))
        .when(text.class_name.isNotNull(), text.class_name)
        .when(value.isNull(), F.lit("MalformedJson"))
    )
    return Parsed(value, kind, _json_message(kind))


def _one_value(text: "Column") -> "Column":
    """Text as a VARIANT if it is one JSON value; else null.

    Spark's parsers ignore what follows the first value. So the text is parsed as the first element of an array whose
    second element is a word that the text cannot know.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    end = uuid.uuid4().hex
    wrapped = F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{end}"]')))
    is_one = F.try_variant_get(wrapped, "$[1]", "string") == end
    return F.when(is_one, F.try_variant_get(wrapped, "$[0]", "variant"))


def _json_message(kind: "Column") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    return (
        F.when(kind == "InvalidUtf8", F.lit("the bytes are not valid UTF-8"))
        .when(kind == "NotAnObject", F.lit("the JSON value is not an object"))
        .when(kind == "TypeMismatch", F.lit("a field of the JSON object does not fit the type of its column"))
        .otherwise(F.lit("the bytes are not one valid JSON value"))
    )


def checked(parsed: Parsed, decoder: str) -> tuple["Column", "Column"]:
    """The data, null where it could not be decoded, and the error column."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

    error = F.struct(
        parsed.class_name.alias("class"),
        parsed.message.alias("message"),
        F.lit(decoder).alias("decoder"),
        F.lit(None).cast("int").alias("schema_id"),
    ).cast(ERROR_DDL)
    failed = parsed.class_name.isNotNull()
    return F.when(~failed, parsed.data), F.when(failed, error)


def columns_of(text: str, where: str) -> "StructType":
    """The columns in a text such as `id BIGINT, name STRING`. Needs a session.

    Args:
        text: as Spark writes a schema.
        where: what has it, for the error.

    Raises:
        UsageError: code `configuration_invalid`: it is not a schema, or repeats a column.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy
    from pyspark.sql.types import StructType  # noqa: PLC0415 - heavy

    try:
        found = StructType.fromDDL(text)
    except PySparkException as failure:
        reason = " ".join(str(failure).split())[:300]
        raise UsageError("configuration_invalid", f"{where}: the columns are not valid: {reason}") from None
    if not isinstance(found, StructType) or not found.fields:
        raise UsageError("configuration_invalid", f"{where}: {text!r} has no columns, as `id BIGINT, name STRING`")
    names = [field.name.lower() for field in found.fields]
    for name in names:
        if names.count(name) > 1:
            raise UsageError("configuration_invalid", f"{where}: the column {name} is given twice")
    return found
