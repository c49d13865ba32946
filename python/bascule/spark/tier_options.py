"""The options of tiered reads: which tiers are read, and where the archive is."""

from typing import TYPE_CHECKING, Any, Final, Literal, cast

from bascule.spark.option_model import Given, Option, choice, text
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.lake.options import ArchiveOptions

Tier = Literal["auto", "broker", "archive"]

TIER: Final = choice(
    "tier",
    "where records are read: `auto` takes those that the archive has from there and the others from the broker, the "
    "other values one of them alone",
    ("auto", "broker", "archive"),
    unset="auto with archivePath, else broker",
    only="batch",
)
ARCHIVE_PATH: Final = text(
    "archivePath",
    "the table that `bascule.spark.archive` keeps of the streams, as its `to`",
    unset="no archive",
    only="batch",
)
ARCHIVE_FORMAT: Final = choice(
    "archiveFormat", "format of that table", ("delta", "iceberg"), default="delta", only="batch"
)
ARCHIVE_CATALOG: Final = text(
    "archiveCatalog", "the catalog of an Iceberg table, as that of `catalog`", unset="default", only="batch"
)
ARCHIVE_CREDENTIALS: Final = text(
    "archiveCredentials", "file with storage options or properties of the catalog, as `credentials`", only="batch"
)
ARCHIVE_ENDPOINT: Final = text("archiveEndpoint", "URL of an S3 service other than AWS, as `endpoint`", only="batch")
ARCHIVE_REGION: Final = text("archiveRegion", "region of the bucket, as `region`", only="batch")
_PLACE: Final = {
    "catalog": ARCHIVE_CATALOG,
    "credentials": ARCHIVE_CREDENTIALS,
    "endpoint": ARCHIVE_ENDPOINT,
    "region": ARCHIVE_REGION,
}
TIER_OPTIONS: Final = (TIER, ARCHIVE_PATH, ARCHIVE_FORMAT, *_PLACE.values())
"""All of them."""


def parse_tier(options: Given) -> "tuple[Tier, ArchiveOptions | None]":
    """The tiers of a read, and its archive; None = only the broker is read.

    Raises:
        UsageError: an archive is needed and not named, or the options of its place do not fit together.
    """
    path = options.get(ARCHIVE_PATH)
    if path is None:
        for option in (TIER, ARCHIVE_FORMAT, *_PLACE.values()):
            is_used = options.has(option) and not (option is TIER and options.get(TIER) == "broker")
            if is_used:
                raise usage(f"option {option.name} needs the option archivePath, which names the archive")
        return "broker", None
    tier = cast("Tier", options.get(TIER) or "auto")
    if tier == "broker":
        return tier, None
    from bascule.lake.options import ArchiveOptions  # noqa: PLC0415 - only for reads of an archive

    place: dict[str, Any] = {name: options.get(option) for name, option in _PLACE.items()}
    return tier, ArchiveOptions(path, cast("Any", options.value(ARCHIVE_FORMAT)), **place)


def check_with_archive(options: Given, without: tuple[Option[Any], ...]) -> None:
    """Reject options that reads of an archive do not apply.

    Raises:
        UsageError: one is given.
    """
    for option in without:
        if options.has(option):
            raise usage(f"option {option.name} is for reads of the broker alone: with archivePath, filter the rows")
