"""A lake table as a target of queries: what each format gives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bascule.lake.archived import Pinned
    from bascule.lake.epochs import Append, Epoch, TableState
    from bascule.lake.files import DataFile
    from bascule.lake.matching import KeyFilter, Match
    from bascule.lake.plans import FilePlan
    from bascule.lake.ranges import Covered, Erased, Source
    from bascule.lake.storage import FileStore


class LakeTable(Protocol):
    """A table of one format. Making one asks nothing of a service."""

    uri: str
    """For messages: path of the table, or its name in a catalog."""

    @property
    def storage(self) -> "FileStore":
        """Where its data files are. The table is there, or its format needs none for this."""
        ...

    def exists(self) -> bool:
        """Whether there is a table."""
        ...

    def prepare(self, schema: Any) -> None:
        """Create the table if it is missing, and compare its columns and partitioning.

        Raises:
            StateError: the table is another one.
        """
        ...

    def compare(self, schema: Any) -> None:
        """Compare the table, if it is there, with rows as `prepare` does. Creates nothing.

        Args:
            schema: Arrow schema of the table; None = only what a row of the table is, and what else is at its place.

        Raises:
            StateError: the table is another one, or a table of another format is at its place.
        """
        ...

    def columns(self) -> Any:
        """Arrow schema of the newest version; None = tables of this format have no schema that can change."""
        ...

    def add_columns(self, schema: Any) -> None:
        """Add the columns of an Arrow schema, with null in all rows. Columns that the table has meanwhile are left.

        Raises:
            UsageError: tables of this format have no schema that can change.
        """
        ...

    def plan(self, schema: Any, token: str) -> "FilePlan":
        """How tasks write files of rows with an Arrow schema, in an attempt with a token.

        Raises:
            StateError: the format needs the table for this, and it is another one.
        """
        ...

    def snapshot(self, epoch: "Epoch") -> "tuple[TableState, Any]":
        """What the newest version says about an epoch, and a handle to commit against."""
        ...

    def append(self, handle: Any, decision: "Append", epoch: "Epoch", files: "Sequence[DataFile]") -> bool:
        """Commit against a snapshot. False = the table has changed meanwhile, and nothing was committed."""
        ...

    def finish(self) -> None:
        """Put files of committed epochs into their places, also those of a process that died after its commit."""
        ...

    def covered(self, sources: "Iterable[Source]") -> "Mapping[Source, Covered]":
        """The offsets that the newest version covers, for those of `sources` that it has rows of."""
        ...

    def pinned(self, sources: "Iterable[Source]") -> "Pinned":
        """The newest version: what it covers of `sources`, and its files, for readers.

        Raises:
            UsageError: tables of this format are not read here.
            StateError: the table has rows that were deleted or changed by another program.
        """
        ...

    def found(self, sources: "Iterable[Source]") -> "Pinned | None":
        """As `pinned`, by one look at the table; None = there is no table."""
        ...

    def opened(self) -> "tuple[Any, Pinned]":
        """The newest version: a handle to `erase` against, and its files; of what it covers nothing.

        Raises:
            StateError: the table has rows that were deleted or changed by another program.
        """
        ...

    def check_erasable(self) -> None:
        """Refuse a table from which records cannot be erased.

        Raises:
            StateError: a property of the table prevents it, or would keep the records.
        """
        ...

    def erase(self, handle: Any, wanted: "KeyFilter", matches: "Sequence[Match]") -> "Mapping[Source, Erased] | None":
        """Erase records, or the first of them, in one commit that also records how many, and where; never the key.

        Args:
            handle: of `opened`.
            wanted: the records.
            matches: all of them in the files of that version; at least one.

        Returns:
            What was erased; None = the table has changed meanwhile, and nothing was erased.
        """
        ...

    def compact(self) -> dict[str, Any]:
        """Merge small files; the figures have at least `numFilesAdded` and `numFilesRemoved`.

        Raises:
            UsageError: tables of this format cannot be compacted.
        """
        ...

    def vacuum(self, retention_hours: float, *, dry_run: bool) -> list[str]:
        """Delete files that no reader and no query needs; their names, relative to the table.

        Raises:
            UsageError: this is not done for tables of this format.
        """
        ...
