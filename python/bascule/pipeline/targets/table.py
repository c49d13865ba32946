"""A lake table as a target of a job, written by `bascule.lake`."""

import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from bascule.errors import StateError
from bascule.lake import writing
from bascule.lake.disk_errors import disk_errors
from bascule.lake.lake_table import LakeTable
from bascule.lake.options import STREAM_MARK, ArchiveOptions, partition_column
from bascule.lake.progress import check_continues
from bascule.lake.rows import shape_of
from bascule.lake.tables import check_rows, open_table
from bascule.pipeline.dead_letters import Origin
from bascule.pipeline.model.targets import OnSchemaChange, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["TableTarget"]

logger = logging.getLogger("bascule.pipeline")


@dataclass(frozen=True)
class TableTarget:
    """One table, or one for each stream."""

    options: ArchiveOptions
    on_schema_change: OnSchemaChange
    action: ClassVar = "append"
    """What it does with rows, as a plan says it."""

    @classmethod
    def of(cls, section: Table) -> "TableTarget":
        """The target of a section of the job."""
        return cls(section.options(), section.on_schema_change)

    @property
    def name(self) -> str:
        """Its name in the job."""
        return self.options.target

    @property
    def place(self) -> str:
        """Format and path."""
        return f"{self.options.table_format} table {self.options.path}"

    def exists(self) -> bool:
        """Whether the table is there. Of several tables by stream: no."""
        if STREAM_MARK in self.options.path:
            return False
        return open_table(self.options, "").exists()

    def check(self, schema: "StructType") -> None:
        """See `JobTarget`."""
        shape = shape_of(schema, self.options)
        self.check_place()
        if STREAM_MARK not in self.options.path:
            with disk_errors(self.options.path):
                check_rows(self._table(), shape, self.options)

    def check_place(self) -> None:
        """Refuse a place that has a table of another format, or with other rows, as one that is merged by keys.

        Raises:
            StateError: it is such a table.
        """
        if STREAM_MARK not in self.options.path:
            with disk_errors(self.options.path):
                self._table().compare(None)

    def check_continues(self, checkpoint: str) -> None:
        """Refuse a table that lacks epochs which the job has written to it. Tables of single streams are compared by
        their next epoch.

        Raises:
            StateError: it is such a table.
        """
        if STREAM_MARK not in self.options.path:
            with disk_errors(self.options.path):
                check_continues(self._table(), checkpoint, self.options.target, self.options.path)

    def _table(self) -> LakeTable:
        return open_table(self.options, "")

    def difference(self, schema: "StructType") -> str | None:
        """See `JobTarget`. A folder of Parquet files has no columns of its own to compare."""
        columns = self._columns()
        if columns is None:
            return None
        return _first_difference(columns, self._given(columns, schema))

    def rejects(self, schema: "StructType") -> str | None:
        """See `JobTarget`."""
        return self.difference(schema) if self.on_schema_change == "dlq" else None

    def write(self, frame: "DataFrame", origin: Origin) -> None:
        """See `JobTarget`."""
        if self.on_schema_change == "evolve":
            frame = self._evolved(frame)
        ids = {"query_id": origin.query_id, "range_id": origin.range_id, "checkpoint": origin.checkpoint}
        writing.write_epoch(frame, self.options, epoch=origin.epoch, one_table=True, **ids)

    @property
    def _added(self) -> AbstractSet[str]:
        """Columns that the table has beside those of the rows: the archive adds those that it partitions by."""
        return {partition_column(field) for field in self.options.partition_by}

    def _columns(self) -> "dict[str, DataType] | None":
        """The columns of the table by name; None = there is no table, or it has no schema."""
        if STREAM_MARK in self.options.path:
            return None
        table = open_table(self.options, "")
        columns = table.columns() if table.exists() else None
        if columns is None:
            return None
        return {field.name: field.dataType for field in _arrow().from_arrow_schema(columns).fields}

    def _given(self, columns: "Mapping[str, DataType]", schema: "StructType") -> "dict[str, DataType]":
        """The columns that rows will have in the table."""
        given = {field.name: self._stored(field.dataType) for field in schema.fields}
        return {**{name: kind for name, kind in columns.items() if name in self._added}, **given}

    def _stored(self, kind: "DataType") -> "DataType":
        """The type that the table has for a type of the rows: Iceberg has no integers below 32 bits."""
        from pyspark.sql.types import ByteType, IntegerType, ShortType  # noqa: PLC0415 - heavy

        is_small = self.options.table_format == "iceberg" and isinstance(kind, ByteType | ShortType)
        return IntegerType() if is_small else kind

    def _evolved(self, frame: "DataFrame") -> "DataFrame":
        """`frame` with every column of the table, after the table got every column of the frame."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy
        from pyspark.sql.types import StructType  # noqa: PLC0415 - heavy

        columns = self._columns()
        if columns is None:
            return frame
        given = self._given(columns, frame.schema)
        for name, kind in given.items():
            if name in columns and _shape(columns[name]) != _shape(kind):
                raise StateError(
                    "failed_precondition",
                    f"{self.place}: {_differs(name, columns[name], kind)}; a type cannot change: cast it in sql",
                    {"table": self.options.path, "column": name},
                )
        if added := [field for field in frame.schema.fields if field.name not in columns]:
            open_table(self.options, "").add_columns(_arrow().to_arrow_schema(StructType(added), timezone="UTC"))
            logger.warning("%s has new columns: %s", self.place, ", ".join(field.name for field in added))
        for name, kind in columns.items():
            if name not in given:
                frame = frame.withColumn(name, F.lit(None).cast(kind))
        return frame


def _arrow() -> Any:
    """Spark's conversions from and to schemas of Arrow."""
    return import_module("pyspark.sql.pandas.types")


def _first_difference(columns: "Mapping[str, DataType]", given: "Mapping[str, DataType]") -> str | None:
    for name, kind in given.items():
        if name not in columns:
            return f"the table has no column {name}"
        if _shape(columns[name]) != _shape(kind):
            return _differs(name, columns[name], kind)
    missing = [name for name in columns if name not in given]
    return f"the rows have no column {missing[0]}" if missing else None


def _differs(name: str, there: "DataType", given: "DataType") -> str:
    return f"the column {name} is {there.simpleString()} in the table and {given.simpleString()} in the rows"


def _shape(kind: "DataType") -> str:
    """The type without nullability."""
    return kind.simpleString()
