"""Tables of streams for SQL."""

from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.spark import create_tables
from bascule.spark.catalog import table_name, table_statements
from harness import Streams


def test_statements_name_the_stream_and_keep_the_options() -> None:
    options = {"address": "h:1", "columns": "offset,value", "subject": "it's.\\x"}
    (orders, dotted) = table_statements(["Orders", "a.b"], options, database="my`db")
    assert orders.sql == (
        "CREATE TABLE IF NOT EXISTS `my``db`.`orders` USING bascule OPTIONS (`address` 'h:1', "
        "`columns` 'offset,value', `subject` 'it\\'s.\\\\x', `stream` '[\"Orders\"]')"
    )
    assert (dotted.stream, dotted.table) == ("a.b", "a_b")


def test_names_of_tables_have_only_what_the_catalog_of_spark_takes() -> None:
    assert [table_name(name) for name in ("Orders", "a.b-c", "größe", "x y")] == ["orders", "a_b_c", "gr__e", "x_y"]


@pytest.mark.parametrize(
    ("options", "tables", "sentence"),
    [
        ({"colums": "value"}, {"a.b": "x"}, r"did you mean columns\?"),
        ({"stream": "s"}, {"a.b": "x"}, "option stream cannot be given: each table has its own"),
        ({"streamPattern": "s"}, {"a.b": "x"}, "exactly one of the options"),
        ({}, {"c": "x"}, "tables names the stream 'c', which is not among the streams"),
        ({}, {"a.b": "X", "a_b": "x"}, "the streams a.b and a_b would both be table x: name one of them by tables"),
        ({}, {}, "the streams a.b and a_b would both be table a_b"),
    ],
)
def test_mistakes_are_refused(options: dict[str, str], tables: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        table_statements(["a.b", "a_b"], options, tables=tables)


@pytest.mark.spark
def test_every_stream_becomes_a_table_that_sql_reads(spark: Any, streams: Streams) -> None:
    for name in ("orders.eu", "Orders.US", "other"):
        streams.create(name)
        streams.put(name, [name.encode()], key=["it's"])
    made = create_tables(spark, address=streams.address, pattern="[Oo]rders.*", tables={"Orders.US": "us"})
    try:
        assert [(each.stream, each.table) for each in made] == [("Orders.US", "us"), ("orders.eu", "orders_eu")]
        rows = spark.sql("select value from us union all select value from orders_eu").collect()
        assert sorted(bytes(row.value) for row in rows) == [b"Orders.US", b"orders.eu"]
        streams.put("orders.eu", [b"new"])
        assert spark.sql("select count(*) from orders_eu").first()[0] == 2
        query = spark.readStream.table("orders_eu").writeStream.format("noop").trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert sum(progress.numInputRows for progress in query.recentProgress) == 2
        create_tables(spark, address=streams.address, pattern="orders.*")  # there is one of that name: unchanged
        assert not spark.catalog.tableExists("other")
    finally:
        for each in made:
            spark.sql(f"drop table {each.table}")


@pytest.mark.spark
def test_tables_carry_options_with_quotes_and_backslashes(spark: Any, streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"a"], subject=["it's"])
    streams.put("s", [b"b"], subject=["other"])
    create_tables(spark, address=streams.address, subject="it's", columns="value,subject")
    try:
        assert spark.sql("select * from s").collect() == [(b"a", "it's")]
    finally:
        spark.sql("drop table s")
