"""Names of logs from the metadata of a data directory, also when it is damaged."""

import re

import pytest
from bascule import engine
from bascule.cli.commands.log_names import METADATA_LOG, PartitionName, PartitionNames, read_names
from bascule.errors import StateError

NAMES = PartitionNames(
    {
        9: PartitionName("default", "orders", 1),
        7: PartitionName("default", "orders", 0),
        8: PartitionName("default", "copy", 0),
    }
)


def test_a_stream_selects_its_logs_in_the_order_of_partitions() -> None:
    assert NAMES.select("orders", None) == [7, 9]
    assert NAMES.select("orders", 1) == [9]


@pytest.mark.parametrize(("stream", "partition", "named"), [("orders", 2, "highest is 1"), ("order", None, "order")])
def test_an_unknown_stream_or_partition_is_refused(stream: str, partition: int | None, named: str) -> None:
    with pytest.raises(StateError, match=named) as raised:
        NAMES.select(stream, partition)
    assert raised.value.code == "not_found"


def test_damaged_metadata_is_named_as_the_possible_reason() -> None:
    damaged = PartitionNames(NAMES.names, "entry 5 is damaged")
    with pytest.raises(StateError, match="entry 5 is damaged"):
        damaged.select("order", None)
    assert damaged.why_unnamed(10) == "entry 5 is damaged"


def test_only_a_log_without_a_name_that_needs_one_has_a_reason() -> None:
    assert NAMES.why_unnamed(7) is None
    assert NAMES.why_unnamed(METADATA_LOG) is None
    assert NAMES.why_unnamed(10)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((0, b"", [], ""), None),
        ((0, b"", [], "entry 3 fails its checksum"), "entry 3 fails its checksum"),
        ((0, b"", [b"not a command"], ""), r"entry 1 of the metadata cannot be applied"),
        ((4, b"not a snapshot", [], ""), r"\w"),
    ],
)
def test_metadata_that_cannot_be_read_is_reported_instead_of_raised(
    metadata: tuple[int, bytes, list[bytes], str], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "read_metadata", lambda _path: metadata)
    found = read_names("data")
    assert not found.names
    assert (found.problem is None) == (reason is None)
    assert reason is None or re.search(reason, str(found.problem))
