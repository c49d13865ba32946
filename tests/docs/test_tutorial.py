"""Follow the tutorial from top to bottom, as a reader would, and check what it ends with."""

import re
from ast import literal_eval
from pathlib import Path
from typing import Final

import bascule
import pytest

from tests.docs.reader import Reader, Step, unused
from tests.docs.snippets import ROOT

PAGE: Final = ROOT / "docs" / "tutorial" / "lakehouse.md"
REPLACED: Final = {"127.0.0.1:9292": "{address}", "nats://127.0.0.1:4222": "{nats}"}
TOTALS: Final = [
    '{"item":"cup","sold":2490,"total":121165.0}',
    '{"item":"pot","sold":2500,"total":123750.0}',
    '{"item":"tea","sold":2500,"total":126250.0}',
    '{"item":"tin","sold":2490,"total":128675.0}',
]


def printed(steps: list[Step], text: str) -> str:
    """The output of the last block with this text."""
    return [step.printed for step in steps if text in step.snippet.text][-1]


@pytest.mark.spark
@pytest.mark.slow
def test_a_reader_follows_the_tutorial(tmp_path: Path) -> None:
    with Reader(tmp_path, PAGE, REPLACED) as reader:
        steps = reader.follow()
        assert printed(steps, "tail -n 1") == '{"id": 9999, "item": "tin", "price": 99.5}\n'
        again = re.search(r"^rows +(\d+)", printed(steps, "pipeline run"), re.MULTILINE)
        assert again
        assert 0 < int(again[1]) < 10_000, "the killed run left nothing to do, or had done nothing"
        assert printed(steps, "import duckdb") == "[(9980, 9980)]\n"
        counts, dead = map(literal_eval, printed(steps, "import polars").splitlines())
        assert counts == [("ExpectationFailed", 10), ("MalformedJson", 10)]
        assert dead == [
            (7, "MalformedJson", b"not JSON"),
            (8, "ExpectationFailed", b'{"id": 8, "item": "cup", "price": -1.0}'),
        ]
        assert sorted(printed(steps, "consume totals").splitlines()[-4:]) == TOTALS
        with bascule.connect(f"liftbridge://{reader.ready['address']}") as client:
            assert client.get_partition("totals", 0).high_watermark == len(TOTALS)


def test_it_is_the_only_tutorial_and_what_is_replaced_is_in_it() -> None:
    assert list(PAGE.parent.glob("*.md")) == [PAGE]
    assert not unused(PAGE, REPLACED)
