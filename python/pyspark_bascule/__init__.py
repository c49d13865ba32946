"""Found by Spark: any importable top-level module named `pyspark_…` with a `DefaultSource` is a data source.

Spark imports all such modules at the first look-up of any format, and one that fails to import hides all others. This
module must not import anything that is slow or optional.
"""

from bascule.spark.source import BasculeSource as DefaultSource

__all__ = ["DefaultSource"]
