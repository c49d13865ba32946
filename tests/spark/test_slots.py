"""The number of tasks that run at once, by the master URL."""

import os

import pytest
from bascule.spark.slots import slots_of_master


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[3, 4]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("local-cluster[2,1,1024]", 2),
        ("local-cluster[3, 4, 512]", 12),
        ("spark://127.0.0.1:7077", None),
        ("yarn", None),
    ],
)
def test_a_master_url_gives_the_slots_or_leaves_it_to_the_executors(master: str, slots: int | None) -> None:
    assert slots_of_master(master) == slots
