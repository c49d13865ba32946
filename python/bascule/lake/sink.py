"""The sink of `format("bascule_archive")`: Parquet files in the tasks, one commit for each table on the driver.

Losing attempts of tasks leave files that no commit names; `bascule.lake.vacuum` removes them.
"""

from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.sql.datasource import DataSource

from bascule.spark.idle import leave_when_closed
from bascule.spark.sentences import sentence_first
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from bascule.lake.writers import EpochWriter, StreamEpochWriter

NAME: Final = "bascule_archive"

leave_when_closed()  # at import, because Spark's workers that look for data sources only import this module


class ArchiveSink(DataSource):
    """Appends to lake tables, each micro-batch exactly once. It does not read: use the table's format."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> NoReturn:
        """Refuse to read.

        Raises:
            UsageError: always.
        """
        with sentence_first():
            raise usage("bascule_archive writes tables: read them as format parquet, or with deltalake or pyiceberg")

    def writer(self, schema: "StructType", overwrite: bool) -> "EpochWriter":
        """A batch write, as one epoch of a query."""
        from bascule.lake.writers import EpochWriter  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            return EpochWriter(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamEpochWriter":  # noqa: N802 - Spark's name
        """One epoch of a streaming query."""
        from bascule.lake.writers import StreamEpochWriter  # noqa: PLC0415 - keeps discovery light

        with sentence_first():
            return StreamEpochWriter(schema, self.options, overwrite=overwrite)
