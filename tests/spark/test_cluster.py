"""Sink and archive with executors in processes of their own: certificates, failing tasks, killed processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from uuid import uuid4

import bascule
import pytest
from bascule.client import StreamOptions
from cluster_job import Plan
from clusters import (
    EXECUTOR,
    LIMIT_S,
    WORKER,
    ancestor,
    clean_environment,
    is_gone,
    kill,
    own_home,
    spark_home,
    standalone_cluster,
)
from lakes import read

from tests import java_start
from tests.conformance.mutual import Mutual, mutual_broker, rule
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "cluster_job.py"
ROWS = 2000
"""In each of two partitions."""
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": java_start.brief_options(),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
}


@pytest.fixture
def mutual(tmp_path: Path) -> Iterator[Mutual]:
    """A broker that knows clients by certificates. `spark` may read `orders`, of 4,000 rows, and write `copy`."""
    with mutual_broker(tmp_path, **{"streams.durability": "disk"}) as running:
        running.allow(rule("spark", "Subscribe", "orders"), rule("spark", "Publish", "copy"))
        with connected(running) as client:
            for name, partitions in (("orders", 2), ("copy", 3)):
                client.create_stream(name, options=StreamOptions(partitions=partitions))
            for partition in (0, 1):
                values = [f"{partition}-{number}".encode() for number in range(ROWS)]
                client.publish_many("orders", values, keys=[value[-2:] for value in values], partition=partition)
        yield running


def connected(mutual: Mutual) -> bascule.Client:
    assert mutual.running is not None
    return mutual.running.connect(tls=mutual.tls("root"))


def plan_of(mutual: Mutual, folder: Path, master: str, once: Literal["fail", "wait"], **config: str) -> Plan:
    """Certificates travel by `spark.files`; the address has their names alone."""
    assert mutual.running is not None
    pair = mutual.pair("spark")
    files = ",".join(map(str, (mutual.authority.ca, pair.cert, pair.key)))
    address = f"bascules://{mutual.running.address}?ca=ca.pem&cert={pair.cert.name}&key={pair.key.name}"
    return Plan(master, address, str(folder), once, config={**CONFIG, "spark.files": files, **config})


class Job:
    """The program while it runs, in a directory that has none of the certificates."""

    def __init__(self, plan: Plan, **environment: str) -> None:
        self.folder = Path(plan.folder)
        self._log = self.folder / "job.log"
        environment = clean_environment(SPARK_HOME=str(own_home(self.folder / "spark")), **environment)
        with self._log.open("wb") as log:
            command = [sys.executable, PROGRAM, str(plan)]
            self._process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log)

    def waiting(self, name: str) -> int:
        """The process of the worker that waits in the middle of a task of a query."""
        mark = self.folder / f"{name}.pid"
        until(lambda: mark.exists() or self._process.poll() is not None, LIMIT_S, what=self._log.read_text)
        assert mark.exists(), self._log.read_text()
        return int(mark.read_text())

    def ended(self) -> None:
        assert self._process.wait(600) == 0, self._log.read_text()

    def failed(self) -> str:
        """What it printed before it failed."""
        assert self._process.wait(600) != 0, self._log.read_text()
        return self._log.read_text()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "job"
    made.mkdir()
    return made


def check(mutual: Mutual, folder: Path) -> None:
    """Every row of the source is in the copy once, and in the table once with its place."""
    with connected(mutual) as client:
        source = [
            (partition, record.offset, record.key, record.value)
            for partition in (0, 1)
            for record in client.subscribe("orders", partition=partition, stop="latest").records()
        ]
        copied = [
            (record.key, record.value)
            for partition in (0, 1, 2)
            for record in client.subscribe("copy", partition=partition, stop="latest").records()
        ]
        sink = client.sink("copy")
    assert len(source) == 2 * ROWS
    assert sorted(copied) == sorted((key, value) for _, _, key, value in source)
    assert (sink.owner, sink.last_epoch, sink.finished, sink.staged_bytes) == ("spark", 2, True, 0)
    rows = [(row["partition"], row["offset"], row["key"], row["value"]) for row in read(f"{folder}/table", "delta")]
    assert rows == source
    for name in ("sink", "archive"):
        assert (folder / name).exists(), "a task was interrupted"


def test_a_task_that_fails_once_is_repeated(mutual: Mutual, folder: Path) -> None:
    job = Job(plan_of(mutual, folder, "local[2,4]", "fail"))
    try:
        job.ended()
    finally:
        job.stop()
    check(mutual, folder)


def test_executors_of_a_local_cluster_are_killed_in_the_middle(mutual: Mutual, folder: Path) -> None:
    before = sorted(spark_home().iterdir())
    job = Job(plan_of(mutual, folder, "local-cluster[2,1,1024]", "wait"))
    try:
        for query in ("sink", "archive"):
            kill(ancestor(job.waiting(query), EXECUTOR))
        job.ended()
    finally:
        job.stop()
    check(mutual, folder)
    assert len([*(folder / "spark/work").iterdir()]) == 1, "the folder of the application"
    assert sorted(spark_home().iterdir()) == before, "nothing is written to the package"


@pytest.mark.long
def test_an_executor_and_a_worker_of_a_standalone_cluster_are_killed_in_the_middle(
    mutual: Mutual, folder: Path
) -> None:
    """With authentication and encryption between the processes of Spark; the executor of a killed worker ends."""
    secrets = folder / "conf"
    secrets.mkdir(mode=0o700)
    settings = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    lines = [f"{name} {value}\n" for name, value in {**settings, "spark.authenticate.secret": uuid4().hex}.items()]
    (secrets / "spark-defaults.conf").write_text("".join(lines))
    with standalone_cluster(folder, SPARK_CONF_DIR=str(secrets)) as master:
        job = Job(plan_of(mutual, folder, master, "wait"), SPARK_CONF_DIR=str(secrets))
        try:
            kill(ancestor(job.waiting("sink"), EXECUTOR))
            executor = ancestor(job.waiting("archive"), EXECUTOR)
            kill(ancestor(executor, WORKER))
            until(lambda: is_gone(executor), LIMIT_S, what="the executor of the worker is gone")
            job.ended()
        finally:
            job.stop()
    check(mutual, folder)
    assert len([*(folder / "work").iterdir()]) == 1, "the folder of the application"


def test_without_the_certificates_the_error_says_how_they_get_there(mutual: Mutual, folder: Path) -> None:
    plan = plan_of(mutual, folder, "local[2]", "fail", **{"spark.files": ""})
    job = Job(plan)
    try:
        assert "ca.pem cannot be read here" in job.failed()
        assert "give the file to Spark (spark.files)" in job.failed()
    finally:
        job.stop()
