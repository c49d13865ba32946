"""The targets of a job: where its rows and its dead letters go."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.alias_generators import to_camel

from bascule.lake.merge_options import MergeOptions
from bascule.lake.options import STREAM_MARK, ArchiveOptions
from bascule.pipeline.model.base import Part, SmallFile, location
from bascule.pipeline.model.streams import Stream
from bascule.spark.checkpoint_copies import local_path
from bascule.spark.spelling import surface

__all__ = ["OnSchemaChange", "Stream", "Table", "Target"]

OnSchemaChange = Literal["fail", "evolve", "dlq"]


_OF_APPENDS: Final = ("partition_by", "compression", "file_bytes", "compact_every")
"""Fields of tables that are appended to."""
_KEYS: Final = {
    **{name: f"key {name}" for name in ("path", "partitionBy", "compression", "fileBytes", "compactEvery")},
    **{name: f"key {name}" for name in ("catalog", "credentials", "endpoint", "region")},
    "tableFormat": "key format",
    "target": "key name",
    "keys": "key merge.keys",
    "history": "key merge.history",
}
"""How a job file spells the options of a table."""


class Merge(Part):
    """Merges the rows by keys instead of appending them: the table has the latest row of each key, or, with `history`,
    all of its versions. The result must have
    the columns `stream`, `incarnation`, `partition`, `offset` and `timestamp`, which say which of two rows is the
    later one.
    """

    keys: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="columns of the result that make up the key; a row in which one is null ends the job"
    )
    delete_when: str | None = Field(
        default=None,
        description="condition in SQL on the columns of the result, as `op = 'd'`: a row that meets it deletes its "
        "key, or ends its current version",
    )
    history: bool = Field(
        default=False,
        description="keep all versions of a key in a Delta table, each a row with the columns valid_from, valid_to and "
        "is_current",
    )

    @field_validator("keys", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class Table(Part):
    """A lake table. It is created with the first rows; each epoch is appended, or merged, exactly once."""

    format: Literal["delta", "parquet", "iceberg"] = Field(description="Delta, a folder of Parquet files, or Iceberg")
    path: str = Field(
        description="folder, or s3://bucket/folder; of an Iceberg table namespace.table; with {stream} in it, each "
        "stream has a table of its own"
    )
    catalog: str | None = Field(
        default=None, description="the catalog of an Iceberg table, as pyiceberg's configuration names it; else default"
    )
    name: str = Field(
        default="table",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="name of the target within the job; the table remembers it, so it stays the same",
    )
    partition_by: tuple[str, ...] = Field(
        default=(),
        description="date (of the column timestamp, UTC), bucket(N) (by the column key), or columns of the result",
    )
    on_schema_change: OnSchemaChange = Field(
        default="fail",
        description="if the columns of the result are not those of the table: fail = end the job; evolve = add new "
        "columns to the table, and write null to those that the result lacks (not for parquet); dlq = the records go "
        "to deadLetters",
    )
    compression: str = Field(default="zstd", description="zstd, snappy, lz4, gzip or none; zstd:LEVEL sets a level")
    file_bytes: int | str = Field(default="128MiB", description="size at which a file is closed")
    compact_every: int = Field(
        default=0, description="compact a Delta or Iceberg table after this many epochs; 0 = never"
    )
    merge: Merge | None = Field(
        default=None,
        description="merge the rows into a Delta or Iceberg table by keys instead of appending them; not with "
        "partitionBy, compression, fileBytes or compactEvery",
    )
    credentials: SmallFile | None = Field(
        default=None,
        description="JSON file with the storage options, or the properties of the Iceberg catalog, on every host; "
        "default: the environment (AWS_…, PYICEBERG_…)",
    )
    endpoint: str | None = Field(default=None, description="URL of an S3 service other than AWS")
    region: str | None = Field(default=None, description="region of the bucket")

    @field_validator("partition_by", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("path")
    @classmethod
    def _located(cls, value: str, info: ValidationInfo) -> str:
        return value if info.data.get("format") == "iceberg" else location(value, info)

    @model_validator(mode="after")
    def _check(self) -> Self:
        with surface(_KEYS):
            self.options()
            self._check_merge()
        if self.on_schema_change == "evolve" and self.format == "parquet":
            raise ValueError(
                "onSchemaChange: evolve is for Delta and Iceberg tables: a folder of Parquet files has no schema to "
                "change"
            )
        if self.on_schema_change != "fail" and STREAM_MARK in self.path:
            raise ValueError(f"onSchemaChange: {self.on_schema_change} is for one table: the path has {STREAM_MARK}")
        return self

    def _check_merge(self) -> None:
        if self.merge_options() is None:
            return
        for name in _OF_APPENDS:
            if name in self.model_fields_set:
                raise ValueError(
                    f"{to_camel(name)} is for tables that are appended to, and this one has merge: remove one"
                )

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.path

    @property
    def located(self) -> tuple[str, str]:
        """Its catalog, empty for a table without one, and its place: equal for two names of the same table."""
        if self.format == "iceberg":
            return self.catalog or "default", self.path
        folder = local_path(self.path)
        return "", self.path.rstrip("/") if folder is None else str(folder.resolve())

    def merge_options(self) -> MergeOptions | None:
        """The options of a merge for `bascule.lake`; None = the table is appended to.

        Raises:
            UsageError: a value is outside its range.
            ValueError: rows cannot be merged into tables of this format.
        """
        if self.merge is None:
            return None
        if self.format == "parquet":
            raise ValueError("merge is for Delta and Iceberg tables, and format is parquet: use delta or iceberg")
        return MergeOptions(
            path=self.path,
            keys=self.merge.keys,
            delete_when=self.merge.delete_when,
            history=self.merge.history,
            table_format=self.format,
            catalog=self.catalog,
            target=self.name,
            credentials=None if self.credentials is None else str(self.credentials),
            endpoint=self.endpoint,
            region=self.region,
        )

    def options(self) -> ArchiveOptions:
        """The options for `bascule.lake`.

        Raises:
            UsageError: a value is outside its range.
        """
        from bascule._units import parse_bytes  # noqa: PLC0415 - only here

        size = parse_bytes(self.file_bytes)
        assert isinstance(size, int)
        return ArchiveOptions(
            path=self.path,
            table_format=self.format,
            partition_by=self.partition_by,
            target=self.name,
            compression=self.compression,
            file_bytes=size,
            compact_every=self.compact_every,
            credentials=None if self.credentials is None else str(self.credentials),
            endpoint=self.endpoint,
            region=self.region,
            catalog=self.catalog,
        )


Target = Annotated[Table | Stream, Field(discriminator="format")]
