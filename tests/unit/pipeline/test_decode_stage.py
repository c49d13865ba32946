"""The Arrow stage without Spark: what a task does, as Spark gets it."""

from importlib import import_module
from typing import Any

import pytest
from bascule.errors import UnavailableError
from bascule.pipeline.decode.stage import with_decoded
from pyspark.sql.types import BinaryType, StructField, StructType

pa: Any = import_module("pyarrow")


class Silent:
    """A decoder whose registry does not answer."""

    name = "avro"
    arrow_type = pa.int64()

    def decode(self, value: bytes) -> Any:
        raise UnavailableError("unavailable", f"the schema registry does not answer for {value!r}")


class Frame:
    """Stands for a DataFrame; keeps the function of the tasks."""

    schema = StructType([StructField("value", BinaryType())])

    def mapInArrow(self, function: Any, _: Any) -> Any:  # noqa: N802 - Spark's name
        return function


def test_an_error_that_is_not_of_a_record_ends_the_task_with_its_code() -> None:
    frame: Any = Frame()
    task: Any = with_decoded(frame, {"value": Silent()})
    batch = pa.RecordBatch.from_pydict({"value": [b"a"]}, schema=pa.schema([("value", pa.binary())]))
    with pytest.raises(UnavailableError, match=r"^\[unavailable\] the schema registry does not answer for b'a'"):
        list(task([batch]))
