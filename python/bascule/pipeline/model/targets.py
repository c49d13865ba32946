"""The targets of a job: where its rows and its dead letters go."""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from bascule.lake.options import STREAM_MARK, ArchiveOptions
from bascule.pipeline.model.base import Part, SmallFile, location
from bascule.pipeline.model.streams import Stream

__all__ = ["OnSchemaChange", "Stream", "Table", "Target"]

OnSchemaChange = Literal["fail", "evolve", "dlq"]


class Table(Part):
    """A lake table. It is created with the first rows; each epoch is appended exactly once."""

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
        self.options()
        if self.on_schema_change == "evolve" and self.format == "parquet":
            raise ValueError(
                "onSchemaChange: evolve is for Delta and Iceberg tables: a folder of Parquet files has no schema to "
                "change"
            )
        if self.on_schema_change != "fail" and STREAM_MARK in self.path:
            raise ValueError(f"onSchemaChange: {self.on_schema_change} is for one table: the path has {STREAM_MARK}")
        return self

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.path

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
