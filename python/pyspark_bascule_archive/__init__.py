"""Found by Spark, as `pyspark_bascule` is: the sink of `format("bascule_archive")`.

Spark imports all modules named `pyspark_…` at the first look-up of any format. This module must not import anything
that is slow or optional.
"""

from bascule.lake.sink import ArchiveSink as DefaultSource

__all__ = ["DefaultSource"]
