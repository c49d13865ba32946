"""The source of a job."""

from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from bascule.pipeline.model.base import Part
from bascule.pipeline.model.spark_options import option_texts, with_options
from bascule.spark.option_model import Kind
from bascule.spark.options import MAX_BYTES, SOURCE, SourceOptions, parse_options

__all__ = ["DEFAULT_COLUMNS", "DEFAULT_EPOCH_BYTES", "Source", "SourceKeys"]

DEFAULT_COLUMNS: Final = (
    "stream",
    "incarnation",
    "partition",
    "offset",
    "timestamp",
    "subject",
    "key",
    "value",
    "headers",
)
DEFAULT_EPOCH_BYTES: Final = "512MiB"
"""Size of an epoch if the job sets none: an epoch with several targets is kept in memory and on local disks."""


class SourceKeys(Part):
    """The streams that are read. Each key is an option of `format("bascule")`; lists and mappings need no JSON."""

    columns: tuple[str, ...] | None = Field(
        default=None,
        description=f"columns of the view `source`, before decoding; default: {', '.join(DEFAULT_COLUMNS)}",
    )

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.parsed()
        return self

    def options(self) -> dict[str, str]:
        """The options that were given, as Spark takes them; always with `columns`."""
        return {**option_texts(self), "columns": ",".join(self.columns or DEFAULT_COLUMNS)}

    def parsed(self) -> SourceOptions:
        """The options, checked.

        Raises:
            UsageError: a value is outside its range, or none or several of stream, streamPattern, assign are given.
        """
        return parse_options(self.options())

    def check_kind(self, kind: Kind) -> None:
        """Refuse keys that apply to the other kind of run alone.

        Args:
            kind: `batch` for the mode `batch`, else `stream`.

        Raises:
            ValueError: such a key is given.
        """
        given = self.options()
        for option in SOURCE.not_for(kind):
            if option.name in given:
                other = "the modes continuous and availableNow" if kind == "batch" else "the mode batch"
                raise ValueError(f"source.{option.name} is for {other}: remove it, or use another mode")


Source: Final[type[SourceKeys]] = with_options(
    SourceKeys,
    "Source",
    SOURCE,
    unset={MAX_BYTES.name: f"{DEFAULT_EPOCH_BYTES}; with maxOffsetsPerTrigger no limit"},
)
"""`SourceKeys` with a field for each option."""
