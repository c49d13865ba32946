"""Names of streams in tests that share a broker."""

import re

from tests.names import fresh


def test_a_test_that_is_tried_again_gets_another_name() -> None:
    names = [fresh("test_of_streams[sync-a/b c]") for _ in range(2)]
    assert names[0] != names[1]
    assert all(re.fullmatch(r"test_of_streams-sync-a-b-c-[0-9a-f]{8}", name) for name in names)


def test_a_name_stays_far_below_what_a_stream_may_have() -> None:
    assert len(fresh("x" * 1000)) < 80
