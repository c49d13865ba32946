"""Settings by which a stream lets queries hold records."""

import pytest
from bascule.control.specs import Defaults, partition_spec
from bascule.metadata import EditStream, StreamSettings

from tests.unit.metadata.test_archives_apply import KEY, applied, refused, state


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (StreamSettings(retention_hold_expiry_ms=60_000), "retention_hold_expiry_ms needs retention_hold_max_bytes"),
        (StreamSettings(retention_hold_max_bytes=0), "retention_hold_max_bytes is 0"),
        (
            StreamSettings(retention_hold_max_bytes=1, retention_hold_expiry_ms=29_999),
            "retention_hold_expiry_ms is 29999",
        ),
        (
            StreamSettings(retention_hold_max_bytes=1, retention_hold_expiry_ms=7 * 86_400_000 + 1),
            "retention_hold_expiry_ms is 604800001",
        ),
    ],
)
def test_a_hold_without_an_end_is_refused(settings: StreamSettings, text: str) -> None:
    at = state()
    rejection = refused(at, EditStream("default", "orders", at.streams[KEY].incarnation, settings))
    assert text in rejection.message


@pytest.mark.parametrize("expiry_ms", [30_000, 7 * 86_400_000, None])
def test_the_data_plane_gets_size_and_time_of_a_stream_that_lets_queries_hold(expiry_ms: int | None) -> None:
    settings = StreamSettings(retention_hold_max_bytes=1, retention_hold_expiry_ms=expiry_ms)
    at = state()
    after = applied(at, EditStream("default", "orders", at.streams[KEY].incarnation, settings)).streams[KEY]
    spec = partition_spec(after, after.partitions[0], Defaults())
    assert (spec["hold_bytes"], spec["hold_ms"]) == (1, expiry_ms or 3_600_000)
    before = at.streams[KEY]
    spec = partition_spec(before, before.partitions[0], Defaults())
    assert (spec["hold_bytes"], spec["hold_ms"]) == (0, 0)
