"""The data source of `format("bascule")`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from bascule.errors import BrokerError
from bascule.spark.columns import TYPES, ddl
from bascule.spark.idle import leave_when_closed
from bascule.spark.option_model import without_catalog
from bascule.spark.options import SOURCE, SourceOptions, check_hold, parse_options
from bascule.spark.sentences import sentence_first
from bascule.spark.usage import nearest, usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bascule.spark.batch import BasculeReader
    from bascule.spark.refused import RefusedStreamReader
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
            if CATALOG_MARK not in self.options:
                _check_path(self.options, "read", "load()")
            parsed = parse_options(self.options)
            columns = parsed.columns
            if CATALOG_MARK not in self.options:
                check_hold(parsed)
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
            _check_path(self.options, "read", "load()")
            check_schema(schema)
            SOURCE.check_kind(SOURCE.read(without_catalog(self.options)), "batch", "read")
            return BasculeReader(self._parsed(schema), schema)

    def streamReader(self, schema: "StructType") -> "BasculeStreamReader | RefusedStreamReader":  # noqa: N802 - Spark's
        """A streaming read. Spark reports a refusal only from the first call of a reader, which raises it then."""
        from bascule.spark.refused import RefusedStreamReader  # noqa: PLC0415 - keeps discovery light
        from bascule.spark.stream import BasculeStreamReader  # noqa: PLC0415 - keeps discovery light

        try:
            _check_path(self.options, "read", "load()")
            check_schema(schema)
            return BasculeStreamReader(self._parsed(schema), schema)
        except BrokerError as failure:
            return RefusedStreamReader(failure)

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
        _check_path(self.options, "write", "start()" if is_stream else "save()")
        if not self.options:
            raise usage(
                "the write has no options: Spark passes none of a table to INSERT INTO, insertInto and writeTo; write "
                'with df.write.format("bascule").option("stream", …)'
            )
        options = parse_sink_options(without_catalog(self.options), is_stream=is_stream)
        check_columns(schema, options)
        return options

    def _parsed(self, schema: "StructType") -> SourceOptions:
        from bascule.spark.tables import options_of  # noqa: PLC0415 - keeps discovery light

        return parse_options({**options_of(schema), **without_catalog(self.options)})


def _check_path(options: Mapping[str, str], what: str, call: str) -> None:
    """Refuse a path; Spark gives none of a table to those who read or write it.

    Raises:
        UsageError: the call had one, or an option `path` was given.
    """
    path = next((text for name, text in options.items() if name.lower() == "path"), None)
    if path is not None:
        raise usage(
            f"the {what} has the path {path!r}, and a stream has none: leave it out of {call}, and name the stream by "
            "the option stream",
            option="path",
        )


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
