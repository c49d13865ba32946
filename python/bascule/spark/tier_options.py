"""The options of tiered reads: which tiers are read, and where the archive is."""

from typing import TYPE_CHECKING, Any, Final, Literal, cast

from bascule.spark.option_model import Given, choice, text
from bascule.spark.spelling import named, renamed, surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.lake.options import ArchiveOptions

Tier = Literal["auto", "broker", "archive"]

TIER: Final = choice(
    "tier",
    "where records are read: `auto` takes those that the archive has from there and the others from the broker, the "
    "other values one of them alone (with `onDataLoss=archive`, `broker` takes those that retention removed from the "
    "archive)",
    ("auto", "broker", "archive"),
    unset="auto with archivePath, else broker",
)
ARCHIVE_PATH: Final = text(
    "archivePath",
    "the table that `bascule.spark.archive` keeps of the streams, as its `to`",
    unset="no archive",
)
ARCHIVE_FORMAT: Final = choice("archiveFormat", "format of that table", ("delta", "iceberg"), default="delta")
ARCHIVE_CATALOG: Final = text(
    "archiveCatalog", "the catalog of an Iceberg table, as that of `catalog`", unset="default"
)
ARCHIVE_CREDENTIALS: Final = text(
    "archiveCredentials", "file with storage options or properties of the catalog, as `credentials`"
)
ARCHIVE_ENDPOINT: Final = text("archiveEndpoint", "URL of an S3 service other than AWS, as `endpoint`")
ARCHIVE_REGION: Final = text("archiveRegion", "region of the bucket, as `region`")
_PLACE: Final = {
    "catalog": ARCHIVE_CATALOG,
    "credentials": ARCHIVE_CREDENTIALS,
    "endpoint": ARCHIVE_ENDPOINT,
    "region": ARCHIVE_REGION,
}
_OF_ARCHIVE: Final = {
    "path": ARCHIVE_PATH.name,
    "tableFormat": ARCHIVE_FORMAT.name,
    **{name: option.name for name, option in _PLACE.items()},
}
"""The options of the archive, by the names that they have for the archive itself."""
TIER_OPTIONS: Final = (TIER, ARCHIVE_PATH, ARCHIVE_FORMAT, *_PLACE.values())
"""All of them."""


def parse_tier(options: Given, on_data_loss: str) -> "tuple[Tier, ArchiveOptions | None]":
    """The tiers of a read, and its archive; None = only the broker is read.

    Args:
        options: of the read.
        on_data_loss: with `archive`, a read of the broker has its archive for what retention removes.

    Raises:
        UsageError: an archive is needed and not named, or the options do not fit together.
    """
    path = options.get(ARCHIVE_PATH)
    if path is None:
        if on_data_loss == "archive":
            raise usage("onDataLoss is archive, which needs the option archivePath: it names the archive")
        for option in (TIER, ARCHIVE_FORMAT, *_PLACE.values()):
            is_used = options.has(option) and not (option is TIER and options.get(TIER) == "broker")
            if is_used:
                raise usage(f"{named(option.name)} needs the option archivePath, which names the archive")
        return "broker", None
    tier = cast("Tier", options.get(TIER) or "auto")
    if tier == "broker" and on_data_loss != "archive":
        return tier, None
    if tier == "archive" and on_data_loss == "archive":
        raise usage("onDataLoss is archive, and with tier=archive nothing else is read: set onDataLoss to fail or skip")
    from bascule.lake.options import ArchiveOptions  # noqa: PLC0415 - only for reads of an archive

    place: dict[str, Any] = {name: options.get(option) for name, option in _PLACE.items()}
    with surface({}), renamed(_OF_ARCHIVE):
        return tier, ArchiveOptions(path, cast("Any", options.value(ARCHIVE_FORMAT)), **place)
