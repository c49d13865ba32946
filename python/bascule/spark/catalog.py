"""`CREATE TABLE … USING bascule` for streams, so that SQL reads them by name.

>>> for each in table_statements(["orders"], {"address": "127.0.0.1:9292"}):
...     print(each.sql)
CREATE TABLE IF NOT EXISTS `orders` USING bascule OPTIONS (`address` '127.0.0.1:9292', `stream` '["orders"]')
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bascule.spark.connection import Broker
from bascule.spark.connection_options import ADDRESS, NAMESPACE, REQUEST_TIMEOUT_MS, RETRY_DEADLINE_MS
from bascule.spark.options import SOURCE, parse_options
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TableStatement:
    """The statement that creates the table of one stream."""

    stream: str
    table: str
    sql: str


def create_tables(
    spark: "SparkSession",
    *,
    pattern: str = ".*",
    database: str | None = None,
    tables: Mapping[str, str] | None = None,
    **options: str | int,
) -> list[TableStatement]:
    """Create a table for each stream of a broker, unless there is a table of that name.

    Args:
        spark: the session; its catalog keeps the tables. That of a session without Hive forgets them with the session.
        pattern: a regular expression that whole stream names match.
        database: an existing database; None = the current one.
        tables: names of tables by stream, instead of those that `table_name` gives.
        **options: options of the data source (`address`, `namespace`, `columns`, `startingOffsets`, …), which each
            table keeps; not `stream`.

    Returns:
        The statements that were executed, by name of the stream.

    Raises:
        UsageError: an option is wrong, or two streams get the same table.
        BrokerError: the broker cannot be reached.
    """
    given = {name: str(value) for name, value in options.items()}
    read = SOURCE.read(given)
    broker = Broker(
        read.value(ADDRESS), read.value(NAMESPACE), read.value(REQUEST_TIMEOUT_MS), read.value(RETRY_DEADLINE_MS)
    )
    streams = [name for name in broker.streams() if re.fullmatch(pattern, name)]
    statements = table_statements(streams, given, database=database, tables=tables)
    for each in statements:
        spark.sql(each.sql)
    return statements


def table_statements(
    streams: Iterable[str],
    options: Mapping[str, str],
    *,
    database: str | None = None,
    tables: Mapping[str, str] | None = None,
) -> list[TableStatement]:
    """The statements for `streams`, in their order. Arguments as those of `create_tables`.

    Raises:
        UsageError: an option is wrong, or two streams get the same table.
    """
    names = list(streams)
    chosen = {stream: (tables or {}).get(stream) or table_name(stream) for stream in names}
    for stream in (tables or {}).keys() - chosen.keys():
        raise usage(f"tables names the stream {stream!r}, which is not among the streams", stream=stream)
    taken: dict[str, str] = {}
    for stream, table in chosen.items():
        if (other := taken.setdefault(table.lower(), stream)) != stream:
            raise usage(f"the streams {other} and {stream} would both be table {table}: name one of them by tables")
    return [TableStatement(stream, table, _sql(stream, table, database, options)) for stream, table in chosen.items()]


def table_name(stream: str) -> str:
    """The name of a stream as a table: in lower case, with `_` for what Spark's catalog refuses in names."""
    return re.sub(r"[^a-z0-9_]", "_", stream.lower())


def _sql(stream: str, table: str, database: str | None, options: Mapping[str, str]) -> str:
    if "stream" in {name.lower() for name in options}:
        raise usage("option stream cannot be given: each table has its own")
    own = {**options, "stream": json.dumps([stream], ensure_ascii=False)}
    parse_options(own)
    name = ".".join(_identifier(part) for part in (database, table) if part)
    listed = ", ".join(f"{_identifier(option)} {_literal(value)}" for option, value in own.items())
    return f"CREATE TABLE IF NOT EXISTS {name} USING bascule OPTIONS ({listed})"


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
