"""The data source of `format("bascule")`."""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from bascule.spark.columns import TYPES, ddl
from bascule.spark.idle import leave_when_closed
from bascule.spark.option_model import without_catalog
from bascule.spark.options import SOURCE, SourceOptions, parse_options
from bascule.spark.sentences import sentence_first
from bascule.spark.usage import nearest, usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bascule.spark.batch import BasculeReader
    from bascule.spark.sink.options import SinkOptions
    from bascule.spark.sink.writers import BasculeStreamWriter, BasculeWriter
    from bascule.spark.stream import BasculeStreamReader

CATALOG_MARK: Final = "provider"
"""An option that is present only when a catalog table is created."""


leave_when_closed()  # at import, because Spark's workers that look for data sources only import this module


class BasculeSource(DataSource):
    """Batch and streaming reads and writes of streams, by Arrow only.

    The columns are those of the option `columns`; a schema given by the user must be a subset of all columns, by name,
    with their types. Nothing is asked of the broker before a read is planned.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bascule"

    def schema(self) -> "str | StructType":
        """The schema if the user gives none.

        Spark's catalog drops the options of a table and keeps its schema, so the schema carries the options.

        Raises:
            UsageError: an option is wrong (checked here because failures later are reported badly).
        """
        with sentence_first():
            columns = parse_options(self.options).columns
        if CATALOG_MARK not in self.options:
            return ddl(columns)
        from bascule.spark.tables import schema_with_options  # noqa: PLC0415 - keeps discovery light

        return schema_with_options(columns, without_catalog(self.options))

    def reader(self, schema: "StructType") -> "BasculeReader":
        """A batch read.

        Raises:
            UsageError: an option is for streaming reads. A table may have such options for `readStream`.
        """
        from bascule.spark.batch import BasculeReader  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            check_schema(schema)
            SOURCE.check_kind(SOURCE.read(without_catalog(self.options)), "batch", "read")
            return BasculeReader(self._parsed(schema), schema)

    def streamReader(self, schema: "StructType") -> "BasculeStreamReader":  # noqa: N802 - Spark's name
        """A streaming read."""
        from bascule.spark.stream import BasculeStreamReader  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            check_schema(schema)
            return BasculeStreamReader(self._parsed(schema), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "BasculeWriter":
        """A batch write, or one within `foreachBatch`."""
        from bascule.spark.sink.writers import BasculeWriter  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            return BasculeWriter(self._sink_options(schema, overwrite=overwrite, is_stream=False), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "BasculeStreamWriter":  # noqa: N802 - Spark's
        """The write of one epoch of a streaming query."""
        from bascule.spark.sink.writers import BasculeStreamWriter  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            return BasculeStreamWriter(self._sink_options(schema, overwrite=overwrite, is_stream=True), schema)

    def _sink_options(self, schema: "StructType", *, overwrite: bool, is_stream: bool) -> "SinkOptions":
        from bascule.spark.sink.options import parse_sink_options  # noqa: PLC0415 - keeps discovery light
        from bascule.spark.sink.rows import check_columns  # noqa: PLC0415 - keeps discovery light

        if overwrite:
            what = "output mode complete" if is_stream else "mode overwrite"
            raise usage(f"{what} would replace what the stream has, and a stream is only appended to: use append")
        options = parse_sink_options(without_catalog(self.options), is_stream=is_stream)
        check_columns(schema, options)
        return options

    def _parsed(self, schema: "StructType") -> SourceOptions:
        from bascule.spark.tables import options_of  # noqa: PLC0415 - keeps discovery light

        return parse_options({**options_of(schema), **without_catalog(self.options)})


def check_schema(schema: "StructType") -> None:
    """Reject a schema that the source cannot provide.

    Raises:
        UsageError: a field is not a column, or has another type.
    """
    for field in schema.fields:
        declared = TYPES.get(field.name)
        if declared is None:
            raise usage(f"there is no column {field.name!r}{nearest(field.name, TYPES)}", column=field.name)
        expected, given = declared.removesuffix(" NOT NULL"), field.dataType.simpleString()
        if given != expected:
            raise usage(f"column {field.name} is {expected}, not {given}: cast it after reading", column=field.name)
