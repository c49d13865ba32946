"""Writes a new project."""

import json
import re
from pathlib import Path
from typing import Final

from bascule.spark.catalog import table_name
from bascule.spark.connection_options import parse_address
from bascule.spark.declarative import templates
from bascule.spark.usage import usage

__all__ = ["SPECIFICATION", "create_project"]

SPECIFICATION: Final = "spark-pipeline.yml"
"""Name of the file that describes a project; Spark looks for it."""

CORRUPT: Final = "_corrupt_record"
"""Field that holds the text of a value which is not valid JSON."""


def create_project(
    folder: Path, *, stream: str, address: str, schema: str | None = None, dead_letters: str | None = None
) -> list[Path]:
    """Write a project that reads one stream into a raw table, a decoded table and a view, and rejects into a stream.

    Args:
        folder: of the project; does not exist, or is empty.
        stream: to read; its values are JSON.
        address: of the broker, HOST:PORT or a URL; it is stored in the project.
        schema: columns of the JSON objects as in SQL, such as `id BIGINT, amount DOUBLE`; None = one column `data` of
            the type VARIANT.
        dead_letters: stream for records that are not decoded or expected; None = `stream` with `_dlq` at its end. It
            must exist when the project runs.

    Returns:
        The files, absolute.

    Raises:
        UsageError: `invalid_argument`: the folder holds files, or an argument is not valid.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise usage(f"{folder} is not empty: name a new folder", folder=str(folder))
    try:
        parse_address(address)
    except ValueError as cause:
        raise usage(f"address {address!r}: {cause}", address=address) from None
    if dead_letters == stream:
        raise usage(f"dead letters would go to {stream}, the stream that is read, for ever: name another stream")
    table = table_name(stream)
    if not re.match(r"[a-z_]", table):
        table = f"_{table}"
    decoded, expected, columns = _decoding(schema)
    values = {
        "name": json.dumps(folder.name, ensure_ascii=False),
        "storage": json.dumps(f"file://{folder / 'storage'}", ensure_ascii=False),
        "address": json.dumps(address, ensure_ascii=False),
        "stream": json.dumps(stream, ensure_ascii=False),
        "dead_letters": json.dumps(dead_letters or f"{stream}_dlq", ensure_ascii=False),
        "table": table,
        "decoded": decoded,
        "expected": expected,
        "columns": columns,
    }
    files = {
        folder / SPECIFICATION: templates.SPECIFICATION.substitute(values),
        folder / "transformations" / "bronze.py": templates.BRONZE.substitute(values),
        folder / "transformations" / "silver.py": templates.SILVER.substitute(values),
        folder / "transformations" / "gold.sql": templates.GOLD.substitute(values),
        folder / ".gitignore": templates.IGNORED,
    }
    (folder / "transformations").mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def _decoding(schema: str | None) -> tuple[str, str, str]:
    """How a value becomes the column `data`, when a row is kept, and the columns of a kept row."""
    if schema is None:
        return "try_parse_json(cast(value AS string))", "data IS NOT NULL", '"data"'
    if re.search(r"""['"\\\n]""", schema):
        raise usage(f"schema {schema!r} has a quote, a backslash or a line end: write it into silver.py of the project")
    columns = f"{schema}, {CORRUPT} STRING"
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}')"
    decoded = f"from_json(cast(value AS string), '{columns}', {options})"
    return decoded, f"data IS NOT NULL AND data.{CORRUPT} IS NULL", '"data.*"'
