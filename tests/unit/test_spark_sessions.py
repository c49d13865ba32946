"""A session that does not start leaves nothing behind."""

import os
import subprocess
from importlib import import_module
from typing import Any

import pytest
from bascule.spark import session


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_start_that_is_interrupted_leaves_no_jvm(
    monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    module: Any = import_module("pyspark.java_gateway")
    sql: Any = import_module("pyspark.sql")
    monkeypatch.setattr(import_module("pyspark").SparkContext, "_gateway", None)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYSPARK_BASCULE_SLOTS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # restored afterwards: `session` sets it
    started: list[Any] = []

    def launched(_: Any) -> None:
        started.append(module.Popen(["sleep", "600"]))
        raise failure

    monkeypatch.setattr(sql.SparkSession.Builder, "getOrCreate", launched)
    popen = module.Popen
    with pytest.raises(failure):
        session("tests", master="local[2]")
    (process,) = started
    assert process.returncode == -9
    assert module.Popen is popen is subprocess.Popen
