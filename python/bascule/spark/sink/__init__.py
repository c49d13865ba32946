"""The sink of `format("bascule")`: batch and streaming writes, exactly once by default (docs/decisions/sink.md).

Tasks stage rows at the broker, the driver publishes an epoch as a whole. Imports nothing heavy: pyarrow and PySpark's
writers are imported where they are used.
"""
