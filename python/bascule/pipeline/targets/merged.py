"""A lake table that is kept at the latest row of each key, or at all versions, as a target of a job."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bascule.lake.merge_options import OF_HISTORY, MergeOptions
from bascule.lake.merging import merge_epoch, table_of
from bascule.pipeline.dead_letters import Origin
from bascule.pipeline.model.targets import Table
from bascule.pipeline.targets.table import TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from bascule.lake.iceberg.merged import MergedIceberg
    from bascule.lake.merged_delta import MergedDelta

__all__ = ["MergeTarget"]


@dataclass(frozen=True)
class MergeTarget(TableTarget):
    """One table, written by merges."""

    merge: MergeOptions
    action: ClassVar = "merge"

    @classmethod
    def of(cls, section: Table) -> "MergeTarget":
        """The target of a section of the job that has `merge`."""
        merge = section.merge_options()
        assert merge is not None  # asked for by the caller
        return cls(section.options(), section.on_schema_change, merge)

    def check(self, schema: "StructType") -> None:
        """See `JobTarget`."""
        super().check(schema)
        self.merge.check(schema.names)

    def _table(self) -> "MergedDelta | MergedIceberg":
        return table_of(self.merge)

    @property
    def _added(self) -> AbstractSet[str]:
        """The columns of versions."""
        return set(OF_HISTORY) if self.merge.history else set()

    def write(self, frame: "DataFrame", origin: Origin) -> None:
        """See `JobTarget`."""
        if self.on_schema_change == "evolve":
            frame = self._evolved(frame)
        ids = {"query_id": origin.query_id, "range_id": origin.range_id, "checkpoint": origin.checkpoint}
        merge_epoch(frame, self.merge, epoch=origin.epoch, one_table=True, **ids)
