"""The options of the table view: the latest record of each key instead of all records."""

from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from bascule.spark.option_model import Given, Option, choice, size
from bascule.spark.usage import usage

TableKey = Literal["key", "subject"]
MissingKey = Literal["fail", "skip"]

VIEW: Final = choice(
    "view",
    "`records`: every record; `table`: of each partition the latest record of each key, without the keys whose latest "
    "value is null (a tombstone)",
    ("records", "table"),
    default="records",
    only="batch",
)
TABLE_KEY: Final = choice(
    "tableKey",
    "the column that is the key of `view=table`",
    ("key", "subject"),
    unset="key",
    only="batch",
)
ON_MISSING_KEY: Final = choice(
    "onMissingKey",
    "if a record has no key, with `tableKey=key`: fail the read, or leave the record out",
    ("fail", "skip"),
    unset="fail",
    only="batch",
)
MOST_TABLE_BYTES: Final = 1 << 30
"""Maximum of `tableMaxBytes`: a task also holds new records and a copy, and Arrow bounds a column to 2 GiB."""
TABLE_MAX_BYTES: Final = size(
    "tableMaxBytes",
    "most bytes of the rows of one partition in `view=table`; its task holds up to 3 times as much while it reads",
    least=1,
    most=MOST_TABLE_BYTES,
    unset="512MiB",
    only="batch",
)
DEFAULT_TABLE_BYTES: Final = 512 << 20
"""`tableMaxBytes` if it is not given."""
_OF_A_TABLE: Final[tuple[Option[Any], ...]] = (TABLE_KEY, ON_MISSING_KEY, TABLE_MAX_BYTES)
TABLE_OPTIONS: Final = (VIEW, *_OF_A_TABLE)
"""All of them."""


@dataclass(frozen=True)
class TableView:
    """How a partition becomes a table.

    Attributes:
        key: the column with the key.
        on_missing_key: `skip` leaves out records without a key, `fail` ends the read.
        max_bytes: of the rows of one partition, in `[1, MOST_TABLE_BYTES]`.
    """

    key: TableKey = "key"
    on_missing_key: MissingKey = "fail"
    max_bytes: int = DEFAULT_TABLE_BYTES

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be read, whichever the user asked for: key, value for tombstones, offset for errors."""
        return (self.key, "value", "offset")


def parse_table(options: Given, unsplit: tuple[Option[Any], ...]) -> TableView | None:
    """The table view of a read; None = the read has every record.

    Args:
        options: of the source.
        unsplit: options that would split a partition, which a table view does not do.

    Raises:
        UsageError: an option of the table view without `view=table`, or one that splits partitions with it.
    """
    if options.value(VIEW) == "records":
        for option in _OF_A_TABLE:
            if options.has(option):
                raise usage(f"option {option.name} is for view=table: set it, or remove {option.name}")
        return None
    for option in unsplit:
        if options.has(option):
            raise usage(
                f"option {option.name} does not go with view=table, which reads each partition in one task: remove it, "
                "or set maxPartitions",
                option=option.name,
            )
    key = cast("TableKey", options.get(TABLE_KEY) or "key")
    if key == "subject" and options.has(ON_MISSING_KEY):
        raise usage("option onMissingKey is for tableKey=key: every record has a subject", option=ON_MISSING_KEY.name)
    return TableView(
        key,
        cast("MissingKey", options.get(ON_MISSING_KEY) or "fail"),
        options.get(TABLE_MAX_BYTES) or DEFAULT_TABLE_BYTES,
    )
