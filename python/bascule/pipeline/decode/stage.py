"""The Arrow stage: Avro and Protobuf of keys and values, in Python workers, on whole record batches.

It stands between two stages of the JVM as `mapInArrow`, which Spark neither repeats nor moves filters across.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.pipeline.decode.decoder import PythonDecoder, decode_column, error_type
from bascule.spark.sentences import sentence_first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DECODED", "decoded_name", "with_decoded"]

DECODED: Final = "__decoded_"
"""Begin of the names of the columns that the stage adds: a struct of `data` and `error`."""


def decoded_name(part: str) -> str:
    """The column that the stage adds for `key` or `value`."""
    return f"{DECODED}{part}"


def with_decoded(frame: "DataFrame", decoders: Mapping[str, PythonDecoder]) -> "DataFrame":
    """`frame` with a struct column for each decoder: the decoded `data`, null with an error, and the `error`.

    Args:
        frame: rows with the binary columns that `decoders` names.
        decoders: by column; not empty.
    """
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - heavy

    types: Any = import_module("pyspark.sql.pandas.types")
    added: list[Any] = []
    for part, decoder in decoders.items():
        data = types.from_arrow_type(decoder.arrow_type, prefer_timestamp_ntz=True)
        error = types.from_arrow_type(error_type())
        added.append(
            StructField(decoded_name(part), StructType([StructField("data", data), StructField("error", error)]))
        )
    schema = StructType([*frame.schema.fields, *added])
    mapped: Any = frame
    return mapped.mapInArrow(_task(dict(decoders), types.to_arrow_schema(schema, timezone="UTC")), schema)


def _task(decoders: dict[str, PythonDecoder], schema: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that runs in the tasks."""

    def decode(batches: Iterable[Any]) -> Iterator[Any]:
        pa: Any = import_module("pyarrow")
        for batch in batches:
            columns = [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(batch.columns, schema, strict=False)
            ]
            for part, decoder in decoders.items():
                target = schema.field(decoded_name(part)).type
                with sentence_first():
                    data, error = decode_column(decoder, batch.column(part), target.field("data").type)
                columns.append(pa.StructArray.from_arrays([data, error], fields=[target.field(0), target.field(1)]))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return decode
