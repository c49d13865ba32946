"""Columns and partitions of Iceberg tables, and how rows are split by them.

`date` is the table's own transform `day(timestamp)`, and `bucket(N)` its `bucket[N](key)`: engines use them for queries
by time and by key. They are not columns of the table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bascule.lake.archived import ArchivedFile
from bascule.lake.grouping import grouped
from bascule.lake.iceberg.catalog import import_pyiceberg
from bascule.lake.iceberg.store import data_root
from bascule.lake.layout import value_text
from bascule.lake.mismatch import EVOLVES
from bascule.lake.options import bucket_count
from bascule.lake.partitioning import Values


@dataclass(frozen=True)
class PartitionField:
    """A field of a table's partition spec."""

    name: str
    column: str
    transform: Any

    def __str__(self) -> str:
        return self.column if str(self.transform) == "identity" else f"{self.transform}({self.column})"


def partition_fields(fields: Sequence[str], columns: Sequence[str]) -> list[PartitionField]:
    """The partition fields for `partitionBy`.

    Args:
        fields: of `partitionBy`.
        columns: of the rows.
    """
    transforms = import_pyiceberg("transforms")
    found: list[PartitionField] = []
    for field in fields:
        count = bucket_count(field)
        if count is not None:
            found.append(PartitionField("key_bucket", "key", transforms.BucketTransform(count)))
        elif field == "date" and "date" not in columns:
            found.append(PartitionField("timestamp_day", "timestamp", transforms.DayTransform()))
        else:
            found.append(PartitionField(field, field, transforms.IdentityTransform()))
    return found


def fields_of(table: Any) -> list[PartitionField]:
    """The partition fields that an opened table has."""
    schema = table.schema()
    return [
        PartitionField(each.name, schema.find_column_name(each.source_id), each.transform)
        for each in table.spec().fields
    ]


def split(batch: Any, fields: Sequence[PartitionField], schema: Any) -> Iterator[tuple[Values, Any]]:
    """The rows of a record batch by partition values, each group in the order of the batch.

    Args:
        batch: a record batch.
        fields: of the table.
        schema: `pyiceberg.schema.Schema` of the table.
    """
    if not fields:
        yield (), batch
        return
    for chosen, rows in grouped(batch, [_values(batch, field, schema) for field in fields]):
        yield tuple((field.name, value_text(value)) for field, value in zip(fields, chosen, strict=True)), rows


def _values(batch: Any, field: PartitionField, schema: Any) -> Any:
    """The partition values of the rows; days since 1970 for dates."""
    pa: Any = import_module("pyarrow")
    column = batch.column(field.column)
    found = field.transform.pyarrow_transform(schema.find_type(field.column))(column)
    return found.cast(pa.int32()) if pa.types.is_date32(found.type) else found


def partition_record(values: Values, table: Any) -> Any:
    """Partition values of a file as its entry in a manifest has them."""
    kinds = table.spec().partition_type(table.schema()).fields
    texts = dict(values)
    return import_pyiceberg("typedef").Record(*[_typed(texts[each.name], each.field_type) for each in kinds])


def _typed(text: str | None, kind: Any) -> Any:
    types = import_pyiceberg("types")
    if text is None or isinstance(kind, types.StringType):
        return text
    return text == "true" if isinstance(kind, types.BooleanType) else int(text)


def archived(file: Any, table: Any) -> ArchivedFile:
    """An entry of a manifest as a file of an archive; its name is relative to the place of the table's data files."""
    conversions, schema = import_pyiceberg("conversions"), table.schema()
    lower: dict[int, bytes] = file.lower_bounds or {}
    upper: dict[int, bytes] = file.upper_bounds or {}
    latest = None
    if "timestamp" in schema.column_names and (time_id := schema.find_field("timestamp").field_id) in upper:
        latest = int(conversions.from_bytes(schema.find_type("timestamp"), upper[time_id]))
    bounds = [
        (name, conversions.from_bytes(kind, lower[number]), conversions.from_bytes(kind, upper[number]))
        for name in ("incarnation", "partition", "offset")  # bounds of texts are cut off
        if name in schema.column_names
        for number, kind in [(schema.find_field(name).field_id, schema.find_type(name))]
        if number in lower and number in upper
    ]
    name, size, rows = file.file_path.removeprefix(f"{data_root(table)}/"), file.file_size_in_bytes, file.record_count
    return ArchivedFile(name, (), tuple(bounds), latest, size, rows)


def file_schema(schema: Any) -> Any:
    """The Arrow schema of a table's data files, with its field ids, from a `pyiceberg.schema.Schema`."""
    pa: Any = import_module("pyarrow")
    found = import_pyiceberg("io.pyarrow").schema_to_pyarrow(schema)
    return pa.schema([field.with_type(_plain(field.type)) for field in found])


def optional(rows: Any) -> Any:
    """An Arrow schema whose columns and their parts may all be null, as those of the tables that are created here."""
    pa: Any = import_module("pyarrow")
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in rows])


def _plain(kind: Any) -> Any:
    """A type without 64-bit offsets, whose parts may be null."""
    pa: Any = import_module("pyarrow")
    types: Any = import_module("pyarrow.types")
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_plain_part(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_plain_part(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        key = kind.key_field.with_type(_plain(kind.key_type))
        return pa.map_(key, _plain_part(kind.item_field))
    if types.is_large_string(kind):
        return pa.string()
    return pa.binary() if types.is_large_binary(kind) else kind


def _plain_part(field: Any) -> Any:
    return field.with_type(_plain(field.type)).with_nullable(True)


def differing(rows: Any, schema: Any) -> str | None:
    """How the columns of a table differ from those of rows, as a clause; None = they do not.

    Args:
        rows: Arrow schema of the rows.
        schema: `pyiceberg.schema.Schema` of the table.
    """
    pa: Any = import_module("pyarrow")
    there = {field.name: field for field in schema.fields}
    for field in optional(rows):
        if field.name not in there:
            return f"it has no column {field.name}{EVOLVES}"
        found = _text(there[field.name].field_type)
        try:
            given = import_pyiceberg("io.pyarrow").pyarrow_to_schema(pa.schema([field]), schema.name_mapping)
        except Exception as cause:  # noqa: BLE001 - of several kinds, for names and for types
            return f"its column {field.name} is {found}, the rows have {field.type} ({cause})"
        wanted = _text(given.fields[0].field_type)
        if wanted != found:
            return f"its column {field.name} is {found}, the rows have {wanted}"
    extra = [name for name in there if name not in rows.names]
    return f"it has a column {extra[0]}, which the rows lack{EVOLVES}" if extra else None


def _text(kind: Any) -> str:
    return str(kind).replace(" required ", " optional ")
