"""Follow every page of docs/how-to from top to bottom, as a reader would, and check its results."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import bascule
import pytest

from tests.docs.reader import HOW_TO, Reader, Step, unused
from tests.docs.snippets import ROOT

GRPC: Final = {"127.0.0.1:9292": "{address}"}
NATS: Final = {"nats://127.0.0.1:4222": "{nats}"}
HTTP: Final = {"127.0.0.1:9393": "{http}"}
JQ: Final = {} if shutil.which("jq") else {" | jq '.partitions[].high_watermark'": ""}
"""Without jq the page is followed nevertheless, and the test reads its JSON."""


class Followed(NamedTuple):
    """A page that was followed to its end; its last broker still runs."""

    page: Path
    steps: list[Step]
    url: str


OF_THEIR_OWN: Final = {
    "archive.md": "tests/docs/test_archive_page.py::test_the_page_is_followed_to_its_end",
    "cluster.md": "tests/docs/test_cluster_page.py::test_the_page_is_followed_to_its_end",
    "encrypt.md": "tests/docs/test_howto_commands.py::test_encrypt_streams_at_rest",
    "iggy.md": "tests/docs/test_howto_iggy.py::test_the_page_is_followed_to_its_end",
    "liftbridge.md": "tests/docs/test_howto_liftbridge.py::test_the_page_is_followed_to_its_end",
    "replay.md": "tests/docs/test_replay_page.py::test_the_page_is_followed_to_its_end",
    "repair.md": "tests/docs/test_howto_commands.py::test_check_and_repair_the_data",
    "sink.md": "tests/docs/test_sink_page.py::test_the_page_is_followed_to_its_end",
    "secure.md": "tests/docs/test_secure.py::test_the_page_is_followed_from_tls_to_a_new_policy",
    "spark.md": "tests/docs/test_readme.py::test_the_stream_is_a_spark_table_and_so_on_the_page_about_spark",
}
"""Pages that need more than a new broker (damage, certificates, another start), and the test of each."""


def command_line(read: Followed) -> None:
    output = printed(read.steps, "--reverse")
    backwards = [json.loads(line)["value"] for line in output.splitlines() if line.startswith("{")]
    numbers = [int(value) for value in backwards if value != "elsewhere"]
    assert len(backwards) == 3
    assert len({json.loads(line)["partition"] for line in output.splitlines() if line.startswith("{")}) == 1
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
    shown = printed(read.steps, "jq ")
    ends = [row["high_watermark"] for row in json.loads(shown)["partitions"]] if JQ else [int(x) for x in shown.split()]
    assert sum(ends) == 2001
    assert min(ends) > 900, "records without a key are spread in turns"
    with bascule.connect(read.url) as client:
        both = [client.subscribe("orders", partition=part, subject="orders.>", stop="latest") for part in (0, 1)]
        matching = [len(list(subscription.records())) for subscription in both]
        copied = [len(list(client.subscribe("copy", partition=part, stop="latest").records())) for part in (0, 1)]
        first, second = client.subscribe("events", stop="latest").records()
        assert client.fetch_cursor("billing", "orders") == 4711
    assert copied == ends
    assert matching == [0, ends[1]]
    assert (first.value, first.header("source"), second.value) == (b"first", b"log", b"second")


def python(read: Followed) -> None:
    first, produced, counted, resumed, shared, concurrent, failed = [
        step.printed for step in read.steps if step.snippet.language == "python"
    ]
    assert first == f"{crc32(b'a') % 2} 0\n"
    assert re.fullmatch(r"\d+ 10001\n", produced)
    assert re.fullmatch(r"10005 \d+ b'.*'\n", counted)
    assert "now mine" in shared
    assert "about to go" in shared
    with bascule.connect(read.url) as client:
        end = client.get_partition("sales", 0).high_watermark
    assert 0 < int(resumed.splitlines()[-1]) < end
    assert sum(map(int, concurrent.split())) == end
    assert failed.startswith('stream_not_found stream "no-such-stream" does not exist')


def remove(read: Followed) -> None:
    trims = re.findall(r"^log start +(\d+)$\n^dry run +(\w+)$", printed(read.steps, "stream trim"), re.MULTILINE)
    assert trims == [("1000", "yes"), ("1000", "no")]
    assert re.search(r"^at once +yes$", printed(read.steps, "--now"), re.MULTILINE)
    with bascule.connect(read.url) as client:
        assert client.publish("orders", b"first again").offset == 0


def monitor(read: Followed) -> None:
    probe, metrics, lags = (step.printed for step in read.steps)
    (shown,) = re.findall(r"^```text\n(.*?)^```", read.page.read_text(), re.DOTALL | re.MULTILINE)
    names = re.findall(r"^(\[.\] .*?): ", shown, re.MULTILINE)
    assert re.findall(r"^(\[.\] .*?): ", probe, re.MULTILINE) == names
    assert all(probe.count(name.removeprefix("[+] ")) >= 2 for name in names), "the probe's text and the table"
    assert metrics.endswith("# EOF\n")
    assert lags.endswith("[]\n"), "nobody reads from this broker"


def jetstream(read: Followed) -> None:
    assert read.steps[-1].printed == "orders 1\n"


def backup(read: Followed) -> None:
    with bascule.connect(read.url) as client:
        records = list(client.subscribe("orders", start="earliest", stop="latest").records())
    assert [record.offset for record in records] == list(range(1001))
    assert (records[0].value, records[-1].value) == (b"1", b"after the restore")


def pipeline(read: Followed) -> None:
    assert '"rows": 1' in printed(read.steps, "--output ndjson")
    tables, quality, outcome = [step.printed for step in read.steps if step.snippet.language == "python"]
    assert tables.splitlines() == [
        "[1, 4, 5]",
        '1 ExpectationFailed b\'{"id": 2, "amount": -3}\'',
        "2 MalformedJson b'not JSON'",
    ]
    assert "{'rows': 2, 'amount is positive': 1}" in quality
    assert outcome == "0 0 False\n"


def tables(read: Followed) -> None:
    shown, kept, history, iceberg, merged = [step.printed for step in read.steps if step.snippet.language == "python"]
    assert iceberg.splitlines()[-1] == kept.splitlines()[-1]
    assert kept.splitlines()[-1] == "[('apple', '12'), ('pear', '20')]"
    versions = [("apple", "10", False), ("apple", "12", True), ("pear", "20", True), ("plum", "7", False)]
    assert history.splitlines()[-1] == str(versions)
    assert merged.splitlines()[-1] == "[{'article': 'apple', 'price': 12}, {'article': 'pear', 'price': 20}]"
    assert re.findall(r"^\|\s*(\w+)\|\s*(\d+)\|$", shown, re.MULTILINE) == [("apple", "12"), ("pear", "20")]


def recipes(read: Followed) -> None:
    programs = [step.printed for step in read.steps if "python " in step.snippet.text]
    first, second, joined, again, amounts, repeated = [printed.splitlines() for printed in programs]
    assert first[-2:] == ["10:00 12", "10:10 1"]
    assert second[-4:] == ["10:00 12", "10:10 1", "10:25 3", "10:30 2"]
    pair = "a 10:00 10:03"
    assert [line for line in joined if re.match(r"[abc] ", line)] == [pair]
    assert [line for line in again if re.match(r"[abc] ", line)] == [pair, "c 10:02 10:04"]
    *earlier, later = [line for line in amounts if re.match(r"\w+=", line)]
    assert sorted(earlier) == ['apple={"pieces":3,"amount":30}', 'plum={"pieces":1}']
    assert later == 'apple={"pieces":3,"amount":36}'
    assert [line for line in repeated if re.match(r"\w+=", line)] == [*earlier, later], "stored once, at the old price"
    (notebook,) = [step.printed for step in read.steps if step.snippet.language == "python"]
    assert re.findall(r"^\|\s*(\d+)\|$", notebook, re.MULTILINE) == ["7"]


def declarative(read: Followed) -> None:
    assert read.steps[-1].printed == "[(1, 2.5), (2, 3.0), (3, 4.0)]\n"
    with bascule.connect(read.url) as client:
        assert [record.value for record in client.subscribe("sales_dlq", stop="latest").records()] == [b"not JSON"]


def go(read: Followed) -> None:
    assert read.steps[-1].printed.splitlines() == [
        "stored at 0",
        "0 readings.> 20.5",
        "stored at 2",
        "0 readings.> 20.5",
        "1 readings.cellar 21.0",
        "2 readings.> 20.5",
    ]


class Page(NamedTuple):
    """How to follow a page: the check at the end, the replacements, the programs that it needs."""

    seen: Callable[[Followed], None]
    replaced: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()


PAGES: Final = {
    "backup.md": Page(backup),
    "command-line.md": Page(command_line, {"10.0.0.5:9292,10.0.0.6:9292": "{address}", **GRPC, **JQ}),
    "declarative.md": Page(declarative),
    "go.md": Page(go, {**GRPC, **NATS}, ("go",)),
    "jetstream-publishers.md": Page(jetstream, NATS),
    "monitor.md": Page(monitor, HTTP, ("curl",)),
    "pipeline.md": Page(pipeline, GRPC),
    "python.md": Page(python, GRPC),
    "recipes.md": Page(recipes, GRPC),
    "remove.md": Page(remove),
    "tables.md": Page(tables, GRPC),
}


def marks(name: str) -> list[pytest.MarkDecorator]:
    """These pages start Spark, the page of jobs four times, which takes longer than other tests may."""
    return [pytest.mark.spark] if name in ("declarative.md", "pipeline.md", "recipes.md", "tables.md") else []


def printed(steps: list[Step], text: str) -> str:
    """The output of the only block with this text."""
    (found,) = [step.printed for step in steps if text in step.snippet.text]
    return found


def modules(directory: Path) -> None:
    """Skip if the Go modules of the page cannot be downloaded."""
    (line,) = re.findall(r"^go get (.*)$", (HOW_TO / "go.md").read_text(), re.MULTILINE)
    (directory / "go.mod").write_text("module example.com/probe\n")
    command = ["go", "mod", "download", *line.split()]
    had = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
    if had.returncode:
        pytest.skip(f"Go modules cannot be had here: {had.stderr.strip()[-300:]}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in PAGES])
def test_a_reader_follows_the_page(name: str, tmp_path: Path) -> None:
    page = PAGES[name]
    missing = [program for program in page.needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the page uses {', '.join(missing)}, which is not installed")
    if name == "go.md":
        (tmp_path / "probe").mkdir()
        modules(tmp_path / "probe")
    (tmp_path / "reader").mkdir()
    with Reader(tmp_path / "reader", name, page.replaced) as reader:
        steps = reader.follow()
        page.seen(Followed(HOW_TO / name, steps, f"liftbridge://{reader.ready['address']}"))


def test_every_page_is_followed_by_a_test() -> None:
    there = {path.name for path in HOW_TO.glob("*.md")}
    assert there == PAGES.keys() | OF_THEIR_OWN.keys(), "a page without a test, or a test without its page"
    assert not PAGES.keys() & OF_THEIR_OWN.keys()


@pytest.mark.parametrize("page", OF_THEIR_OWN)
def test_a_page_with_a_test_of_its_own_has_that_test(page: str) -> None:
    path, _, name = OF_THEIR_OWN[page].partition("::")
    text = (ROOT / path).read_text()
    assert f"def {name}(" in text
    assert f'"{page}"' in text, "it does not read the page"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_replaced_is_in_the_page(name: str) -> None:
    assert not unused(name, PAGES[name].replaced)
