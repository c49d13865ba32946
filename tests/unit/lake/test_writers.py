"""Which job groups are ids of runs of a streaming query."""

import pytest
from bascule.lake.epochs import run_of


@pytest.mark.parametrize(
    "group", [None, "", "nightly", "0f8fad5bd9cb469fa16570867728950e", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]
)
def test_a_job_group_of_the_user_is_not_the_id_of_a_run(group: str | None) -> None:
    assert run_of(group) is None


def test_the_id_of_a_run_is_a_random_uuid() -> None:
    assert run_of("0f8fad5b-d9cb-469f-a165-70867728950e") == "0f8fad5b-d9cb-469f-a165-70867728950e"
