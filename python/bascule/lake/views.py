"""Replaces Arrow's view types, which pyarrow can hardly compute with.

deltalake writes them into the Arrow schema of files that it makes when it deletes or merges rows, and pyarrow reads
such files with these types.
"""

from importlib import import_module
from typing import Any


def without_views(rows: Any) -> Any:
    """A table or record batch with texts and binaries instead of views of them; the same one if it has none.

    Raises:
        pyarrow.ArrowInvalid: a column of a batch has 2 GiB or more.
    """
    pa: Any = import_module("pyarrow")
    schema = pa.schema([field.with_type(_plain(field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _plain(kind: Any) -> Any:
    pa: Any = import_module("pyarrow")
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_field(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    return kind


def _field(field: Any) -> Any:
    return field.with_type(_plain(field.type))
