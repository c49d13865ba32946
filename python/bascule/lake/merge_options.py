"""Options of a table that keeps the latest row, or all versions, of each key."""

from dataclasses import dataclass, fields
from typing import Final, Literal

from bascule.lake.options import STREAM_MARK, ArchiveOptions, check_marks
from bascule.lake.ranges import POSITION
from bascule.spark.spelling import named, surface
from bascule.spark.usage import usage

DELETED: Final = "__deleted"
"""Whether a row deletes its key; a column beside those of the table, while an epoch is merged."""
CLOSES: Final = "__closes"
"""Whether a row ends the current version of its key; another such column."""
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
IS_CURRENT: Final = "is_current"
OF_HISTORY: Final = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns that a table of all versions has beside those of the rows."""
_ARGUMENTS: Final = {"tableFormat": "argument table_format"}


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """A Delta or Iceberg table that keeps the latest row of each key, or a Delta table that keeps all versions.

    Attributes:
        path: folder of a Delta table, or `s3://bucket/folder`; of an Iceberg table `namespace.table`.
        keys: columns that make up the key; one or several, none of `POSITION`. Null is not a key.
        delete_when: SQL condition on the columns; the key of a row that meets it is deleted from the table, or its
            current version ends. None = no row deletes its key.
        history: keep all versions of a key (slowly changing dimension, type 2), with the columns `OF_HISTORY`.
        target: name of this write where a query writes the table more than once in an epoch.
        credentials, endpoint, region, catalog: as in `ArchiveOptions`.
        table_format: `delta` or `iceberg`.
    """

    path: str
    keys: tuple[str, ...]
    delete_when: str | None = None
    history: bool = False
    target: str = "table"
    credentials: str | None = None
    endpoint: str | None = None
    region: str | None = None
    catalog: str | None = None
    table_format: Literal["delta", "iceberg"] = "delta"

    def __post_init__(self) -> None:
        with surface({**{field.name: f"argument {field.name}" for field in fields(self)}, **_ARGUMENTS}):
            self._check()

    def _check(self) -> None:
        if self.table_format not in ("delta", "iceberg"):
            raise usage(
                f"{named('tableFormat')} is {self.table_format!r}: rows are merged into Delta and Iceberg tables"
            )
        if self.history and self.table_format != "delta":
            raise usage(
                f"{named('history')} is for Delta tables: an Iceberg table is kept at the latest row of each key"
            )
        if not self.keys:
            raise usage(f"{named('keys')} is empty: name the columns that make up the key of the table")
        if twice := sorted({name for name in self.keys if self.keys.count(name) > 1}):
            raise usage(f"{named('keys')} names {twice[0]} twice")
        if wrong := [name for name in self.keys if name in POSITION]:
            raise usage(f"{named('keys')} names {wrong[0]}, which is the position of a record and not its key")
        if STREAM_MARK in self.path:
            raise usage(
                f"{named('path')} is {self.path!r}: a table of latest rows has one folder, without {STREAM_MARK}"
            )
        check_marks(self.path)
        self.table()

    def table(self) -> ArchiveOptions:
        """The options by which the table's storage is opened.

        Raises:
            UsageError: the path or the target is not valid.
        """
        return ArchiveOptions(
            path=self.path,
            table_format=self.table_format,
            target=self.target,
            credentials=self.credentials,
            endpoint=self.endpoint,
            region=self.region,
            catalog=self.catalog,
        )

    def check(self, columns: list[str]) -> None:
        """Compare with the columns of the rows.

        Raises:
            UsageError: a needed column is missing, or a name is taken.
        """
        if missing := [name for name in (*POSITION, *self.keys) if name not in columns]:
            raise usage(
                f"the rows have no column {missing[0]}: a table of latest rows needs {', '.join(POSITION)} and its "
                f"keys, {', '.join(self.keys)}"
            )
        taken = (DELETED, CLOSES, *(OF_HISTORY if self.history else ()))
        if found := [name for name in taken if name in columns]:
            raise usage(f"the rows have a column {found[0]}, a name that merging needs: rename it")
