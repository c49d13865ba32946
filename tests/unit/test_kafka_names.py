"""The table of names for users of Spark's Kafka connector."""

from pathlib import Path

import pytest
from bascule.spark import kafka_names

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/spark.md"
NAMES = sorted({*kafka_names._OURS, *kafka_names._NEEDLESS})  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_about_reading_has_every_option_that_is_answered_with_ours(name: str) -> None:
    table = PAGE.read_text().partition("## Coming from Kafka")[2].lower()
    assert f"`{name}`" in table
    assert kafka_names.kafka_advice(name) is not None
