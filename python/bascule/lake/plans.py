"""How tasks write the data files of one table: what its format decides about them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from bascule.lake.layout import partition_folder
from bascule.lake.options import ArchiveOptions, partition_column
from bascule.lake.partitioning import Values, split
from bascule.lake.statistics import file_statistics
from bascule.lake.storage import FileStore


@dataclass(frozen=True)
class FilePlan:
    """Of one table, for one attempt at an epoch.

    Attributes:
        store: where the files are written.
        schema: Arrow schema of the files; its columns are among those of the rows.
        split: the rows of a record batch by their partition values, each group in the order of the batch.
        folder: of files with these partition values, relative to the table, without a slash at its end; may be empty.
        statistics: of a closed file, from its Parquet metadata: what the table's commit says about it.
        staging: folder for files before the commit; None = they are written where they stay.
    """

    store: FileStore
    schema: Any
    split: Callable[[Any], Iterator[tuple[Values, Any]]]
    folder: Callable[[Values], str]
    statistics: Callable[[Any], dict[str, Any]]
    staging: str | None = None


def hive_plan(store: FileStore, options: ArchiveOptions, schema: Any, staging: str | None = None) -> FilePlan:
    """The plan of Delta and Parquet tables: partition columns are in the names of folders, not in the files.

    Args:
        store: folder of the table.
        options: of the table.
        schema: Arrow schema of the table.
        staging: see `FilePlan`.
    """
    columns = {partition_column(field) for field in options.partition_by}
    kept = import_module("pyarrow").schema([field for field in schema if field.name not in columns])
    return FilePlan(
        store,
        kept,
        split=partial(split, fields=options.partition_by),
        folder=_hive_folder,
        statistics=partial(file_statistics, schema=kept),
        staging=staging,
    )


def _hive_folder(values: Values) -> str:
    return partition_folder(dict(values))
