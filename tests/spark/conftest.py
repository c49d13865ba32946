"""One Spark session for all tests of this folder; a fresh broker engine for each test."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import bascule.spark
import bascule.testing
import pytest
from bascule import failpoints
from bascule.testing import TestBroker as Broker
from buckets import Bucketed
from harness import Streams

from tests.failpoints import Points
from tests.torture.s3_service import s3_service


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A whole broker, for the tests of one file."""
    with bascule.testing.broker(durability="disk") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[bascule.Client]:
    with broker.connect() as connected:
        yield connected


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    made = Streams(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """An S3 service with the bucket `lake`, in a process of its own: calls of deltalake hold the interpreter."""
    with s3_service() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def bucket(s3_endpoint: str, tmp_path: Path) -> Bucketed:
    return Bucketed(s3_endpoint, tmp_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ[failpoints.VARIABLE] = str(tmp_path_factory.mktemp("failpoints"))  # inherited by Spark's workers
    config: dict[str, str | int | bool] = {
        "spark.ui.enabled": False,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "1g",
    }
    session = bascule.spark.session("tests", master="local[2]", config=config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def points(spark: Any) -> Iterator[Points]:
    """The points of the session's workers."""
    assert spark is not None
    found = Points(Path(os.environ[failpoints.VARIABLE]))
    yield found
    found.clear()
