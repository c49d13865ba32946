"""Found by Spark: any importable top-level module named `pyspark_…` with a `DefaultSource` is a data source.

Spark imports every such module at its first look-up of any format, and one that fails to import hides all of them: this
module must import nothing that is heavy or optional.
"""

from bascule.spark.source import BasculeSource as DefaultSource

__all__ = ["DefaultSource"]
