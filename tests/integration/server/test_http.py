"""The HTTP listener of a running broker: probes and metrics, while Python is busy, and rejected addresses."""

import json
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from bascule import StreamOptions, group_cursor
from bascule.testing import TestBroker, broker
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.conformance.api import Api
from tests.integration.faults.process import ENVIRONMENT, command, serving, wait_for

ROOT: Final = Path(__file__).resolve().parents[3]
TABLE: Final = tomllib.loads((ROOT / "specs/metrics.toml").read_text())
SUFFIXES: Final = {"counter": "_total", "gauge": "", "histogram": "", "info": "_info"}
FREE: Final = "127.0.0.1:0"
LIMIT_S: Final = 30.0


def get(address: str, path: str) -> tuple[int, str]:
    """Status and text of an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def families(address: str) -> dict[str, Metric]:
    """The answer of `/metrics`, by the name of the family."""
    status, text = get(address, "/metrics")
    assert status == 200
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    settings = {"http.listen": FREE, "metrics.partitions": True, "cursors.partitions": 1}
    with broker(settings=settings) as started:
        yield started


def test_metrics_are_the_rows_of_the_specification(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("measured", "measured", options=StreamOptions(partitions=2))
        client.publish("measured", b"value", partition=1)
        client.set_cursor(group_cursor("readers"), "measured", 0, partition=1)
    with Api(running.address) as api:
        part = api.admin("FetchStreamDetails", name="measured").partitions[1]
        positions = [{"partition": 1, "incarnation": part.incarnation, "next": 0}]
        api.admin("ReportQuery", query="totals", streams=[{"name": "measured", "positions": positions}])
    found = families(running.http_address)
    rows = {row["metric"].removesuffix(SUFFIXES[row["kind"]]): row for row in TABLE.values()}
    assert found.keys() == rows.keys()
    for name, family in found.items():
        row = rows[name]
        assert (family.type, family.documentation) == (row["kind"], row["meaning"])
        assert family.samples, f"{name} has no value"
        for sample in family.samples:
            if row["kind"] == "histogram":
                assert sample.name.removeprefix(name) in {"_bucket", "_count", "_sum"}
            else:
                assert sample.name == row["metric"]
                assert list(sample.labels) == row.get("labels", [])
    ends = {
        (sample.labels["stream"], sample.labels["partition"]): sample.value
        for sample in found["bascule_partition_log_end_offset"].samples
    }
    assert ends["measured", "0"] == 0
    assert ends["measured", "1"] == 1
    assert found["bascule_records_appended"].samples[0].value >= 1
    assert found["bascule_ready"].samples[0].value == 1
    for name in ("bascule_append_duration_seconds", "bascule_sync_duration_seconds"):
        values = {sample.name.removeprefix(name): sample.value for sample in found[name].samples}
        assert values["_count"] >= 1
        assert 0 < values["_sum"] < LIMIT_S
    levels = [sample.labels["level"] for sample in found["bascule_log_messages"].samples]
    assert levels == ["info", "warning", "error"]
    assert 0 < found["process_cpu_seconds"].samples[0].value < 3600


def test_metrics_of_the_control_plane_arrive_within_seconds(running: TestBroker) -> None:
    with running.connect() as client:
        client.create_stream("counted")

    def counted(name: str) -> float:
        return families(running.http_address)[name].samples[0].value

    # At least this broker, its address, and the stream.
    wait_for(lambda: counted("bascule_commands_applied") >= 2, LIMIT_S, "reported")
    assert counted("bascule_commands_apply_seconds") > 0
    assert counted("bascule_log_messages") >= 1
    assert counted("bascule_event_loop_blocked") == 0


def test_the_content_type_is_that_of_openmetrics(running: TestBroker) -> None:
    with urllib.request.urlopen(f"http://{running.http_address}/metrics", timeout=LIMIT_S) as answer:
        assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_series_of_partitions_are_off_by_default(tmp_path: Path) -> None:
    with broker(directory=tmp_path, settings={"http.listen": FREE}) as started:
        with started.connect() as client:
            client.create_stream("measured", "measured.>")
        found = families(started.http_address)
        assert found["bascule_streams"].samples[0].value >= 1
        assert not [name for name in found if name.startswith("bascule_partition_")]


def test_probes_list_their_checks(running: TestBroker) -> None:
    assert get(running.http_address, "/livez") == (200, "livez ok\n")
    assert get(running.http_address, "/startupz") == (200, "startupz ok\n")
    assert get(running.http_address, "/readyz") == (200, "readyz ok\n")
    status, text = get(running.http_address, "/readyz?verbose")
    assert status == 200
    for name in ("metadata log", "data directory", "disk space", "nats", "control plane", "clock", "isr"):
        assert f"[+] {name}: " in text


BUSY = """
import json, sys
from pathlib import Path
from bascule import config, logs
from bascule.server import run
logs.configure("info", "json")
def on_ready(broker):
    Path(sys.argv[2]).write_text(broker.http_address)
    # One call that keeps the interpreter to itself: no thread of Python runs.
    sum(range(10**10))
run(config.load(None, json.loads(sys.argv[1]), {}), on_ready)
"""


def test_probes_and_metrics_are_answered_while_python_is_busy(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    flags = {"data_dir": str(tmp_path / "data"), "broker.port": 0, "nats.standalone": True, "http.listen": FREE}
    arguments = [sys.executable, "-c", BUSY, json.dumps(flags), str(ready)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: ready.exists() and ready.read_text(), LIMIT_S, "ready")
            address = ready.read_text()
            for path in ("/livez", "/startupz", "/readyz", "/metrics"):
                assert get(address, path)[0] == 200
            # The data plane detects that the interpreter is busy.
            busy = "[!] control plane: its event loop does not run"
            wait_for(lambda: busy in get(address, "/readyz")[1], LIMIT_S, "reported as busy")
            assert get(address, "/readyz")[0] == 200
            assert families(address)["bascule_event_loop_blocked"].samples[0].value == 1
            assert process.poll() is None
        finally:
            process.kill()


def test_a_broker_starts_without_the_listener_when_the_port_is_taken(running: TestBroker, tmp_path: Path) -> None:
    taken = running.http_address
    with serving(tmp_path, "--standalone", "--port", "0", "-d", tmp_path / "data", "--http", taken) as second:
        second.wait_ready()
        assert json.loads(second.ready_file.read_text())["http_address"] == ""
        lines = [json.loads(line) for line in second.log.splitlines() if line.startswith("{")]
        warned = [line for line in lines if line["target"] == "bascule.http"]
        assert [line["level"] for line in warned] == ["warning"]
        assert taken in warned[0]["message"]
        assert "http.listen" in warned[0]["message"]


def test_the_listener_is_rejected_on_public_addresses(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("serve", "--standalone", "--port", "0", "-d", tmp_path / "data", "--http", "0.0.0.0:0"),
        capture_output=True, text=True, timeout=LIMIT_S, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "http.allow_remote" in ended.stderr
