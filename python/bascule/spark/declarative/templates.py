"""The files of a new project. `$name` stands for a value of the project; `$$` is a dollar sign."""

from string import Template
from typing import Final

SPECIFICATION: Final = Template("""\
# A project of Spark Declarative Pipelines. Run it: bascule spark run
name: $name
# Checkpoints. Keep them: they hold how far each flow has read.
storage: $storage
configuration:
  bascule.address: $address
  bascule.stream: $stream
  bascule.dead_letters: $dead_letters
libraries:
  - glob:
      include: transformations/**
""")

BRONZE: Final = Template('''\
"""The records as they are, with their offsets."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
ADDRESS = spark.conf.get("bascule.address")
STREAM = spark.conf.get("bascule.stream")
COLUMNS = "partition,offset,timestamp,subject,key,value,headers"


@dp.table(comment="Every record of the stream, undecoded.")
def ${table}_raw() -> DataFrame:
    reader = spark.readStream.format("bascule").options(address=ADDRESS, stream=STREAM, columns=COLUMNS)
    return reader.option("startingOffsets", "earliest").load()
''')

SILVER: Final = Template('''\
"""Decoded and checked rows. What cannot be decoded or fails the check goes to the stream of dead letters."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
ADDRESS = spark.conf.get("bascule.address")
DEAD_LETTERS = spark.conf.get("bascule.dead_letters")

DECODED = "$decoded"
EXPECTED = "$expected"
"""True for a row that is kept. Add what you expect of its fields."""


def checked() -> DataFrame:
    """Without withColumn: Spark 4.3 would start a flow before the table that it reads is up to date."""
    raw = spark.readStream.table("${table}_raw")
    decoded = raw.selectExpr("*", f"{DECODED} AS data")
    return decoded.selectExpr("*", f"coalesce({EXPECTED}, false) AS is_expected")


@dp.table(comment="Decoded records.")
def $table() -> DataFrame:
    return checked().where("is_expected").select("partition", "offset", "timestamp", "key", $columns)


dp.create_sink("${table}_dlq", "bascule", {"address": ADDRESS, "stream": DEAD_LETTERS})


@dp.append_flow(target="${table}_dlq")
def ${table}_dead_letters() -> DataFrame:
    return checked().where("NOT is_expected").select("key", "value", "headers", "timestamp")
''')

GOLD: Final = Template("""\
-- Computed from all rows again at each run.
CREATE MATERIALIZED VIEW ${table}_by_hour AS
SELECT date_trunc('hour', timestamp) AS hour, count(*) AS records
FROM $table
GROUP BY date_trunc('hour', timestamp)
""")

IGNORED: Final = """\
catalog/
derby.log
storage/
warehouse/
"""
