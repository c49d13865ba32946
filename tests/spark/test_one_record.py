"""A record that one protocol writes is read by every other, field by field; docs/reference/one-record.md shows it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule.testing
import one_record
import pytest
from bascule.testing import TestBroker as Broker

from tests.waiting import until

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/one-record.md"
REWRITE = "BASCULE_WRITE_ONE_RECORD"
"""The variable with which the test writes the page instead of comparing it."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(one_record.PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with bascule.testing.broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def seen(serving: Broker, spark: Any) -> one_record.Seen:
    """What every reader shows of every record."""
    found = dict[str, dict[str, list[one_record.Row]]]()
    with serving.connect() as client:
        for writer in one_record.WRITERS:
            client.create_stream(writer.stream, f"{writer.stream}.>" if "NATS" in writer.name else None)
            writer.write(serving, writer.stream)

            def end(stream: str = writer.stream) -> int:
                return client.get_partition(stream, 0).high_watermark

            count = len(writer.sent)
            until(lambda end=end, count=count: end() == count, what=f"all records of {writer.name}")
            times = one_record.times(serving, writer.stream)
            found[writer.name] = {
                name: read(serving, writer.stream, times) for name, read in one_record.readers(spark).items()
            }
    return found


def test_the_page_is_what_every_protocol_shows(seen: one_record.Seen) -> None:
    text = one_record.page(seen)
    if os.environ.get(REWRITE):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, f"run this test with {REWRITE}=1"


def test_what_readers_have_in_common_is_equal(seen: one_record.Seen) -> None:
    first_partition = {"Iggy v1": "1"}
    for writer, by_reader in seen.items():
        for reader, rows in by_reader.items():
            for number, row in enumerate(rows):
                wanted = by_reader["Flight"][number]
                place = f"{writer}, record {number}, by {reader}"
                assert row["offset"] == str(number), place
                assert row.get("partition", "0") == first_partition.get(reader, "0"), place
                assert row["timestamp"].startswith("receipt"), place
                assert row["value"] == wanted["value"].replace("none", "empty") or row["value"] == wanted["value"], (
                    place
                )
                for field in ("key", "subject"):
                    assert field not in row or row[field] in {wanted[field], wanted[field].replace("none", "empty")}, (
                        place
                    )
    assert seen["Flight, DoPut"]["Spark"] == seen["Flight, DoPut"]["Flight"]
