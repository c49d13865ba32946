"""`__cursors` and `__activity` (liftbridge §7): ordinary streams, encrypted if streams are."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.testing import broker

from tests.conformance.api import EARLIEST, LATEST, Api, Failed, failed
from tests.waiting import until

ON: Mapping[str, object] = {"cursors.partitions": 1, "activity.enabled": True}
PLANTED = b"planted-name"


def on_disk(directory: Path) -> bytes:
    """All bytes of all partitions."""
    files = (item for item in (directory / "data" / "partitions").rglob("*") if item.is_file())
    return b"".join(item.read_bytes() for item in files)


@pytest.mark.parametrize("encrypted", [False, True])
def test_internal_streams_are_encrypted_if_streams_are(tmp_path: Path, encrypted: bool) -> None:
    (tmp_path / "key").write_bytes(base64.b64encode(bytes(range(32))))
    keys = {"encryption.keys": {"one": str(tmp_path / "key")}, "streams.encryption": True} if encrypted else {}
    name = PLANTED.decode()
    cursor: dict[str, Any] = {"stream": name, "cursorId": name}
    with broker(durability="disk", directory=tmp_path / "broker", settings={**ON, **keys}) as running:
        with Api(running.address) as api:
            api.create(name)
            api.call("SetCursor", offset=7, **cursor)
            until(lambda: api.partition("__activity").newestOffset >= 2)
        running.kill()
        running.start()
        with Api(running.address) as api:
            assert api.call("FetchCursor", **cursor).offset == 7
            events = [message("ActivityStreamEvent").FromString(item.value) for item in api.read("__activity")]
    created = [event.createStreamOp.stream for event in events if event.op == 0]
    assert sorted(created) == ["__activity", "__cursors", name]
    assert (PLANTED in on_disk(tmp_path / "broker")) == (not encrypted)


def test_internal_streams_are_read_paused_and_made_read_only_like_others() -> None:
    with broker(settings=ON) as running, Api(running.address) as api:
        api.call("SetCursor", stream="s", cursorId="c", offset=3)
        (record,) = api.read("__cursors")
        cursor = message("SetCursorRequest").FromString(record.value)  # the fields 1 to 4 are those of a cursor
        assert (record.key, cursor.stream, cursor.cursorId, cursor.offset) == (b"c,s,0", "s", "c", 3)
        for name in ("__cursors", "__activity"):
            shown = api.stream(name)
            assert list(shown.partitions[0].replicas) == list(shown.partitions[0].isr) == [shown.partitions[0].leader]
            api.call("PauseStream", name=name)
            assert api.subscribe(name, startPosition=EARLIEST, resume=True).next().offset == 0
        api.call("SetStreamReadonly", name="__cursors", readonly=True)
        with pytest.raises(Failed, check=failed("INTERNAL", "readonly partition: 0")):
            api.call("SetCursor", stream="s", cursorId="c", offset=4)
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 3
        api.call("SetStreamReadonly", name="__cursors", readonly=False)
        api.call("SetCursor", stream="s", cursorId="c", offset=4)
        assert api.call("FetchCursor", stream="s", cursorId="c").offset == 4


def test_the_activity_stream_does_not_resume_itself_endlessly() -> None:
    settings = {**ON, "streams.auto_pause_time_ms": 500, "cursors.auto_pause_time_ms": 0}
    with broker(settings=settings) as running, Api(running.address) as api:
        for number in range(3):
            api.create(f"s{number}")
        until(lambda: all(api.stream(f"s{number}").partitions[0].paused for number in range(3)))
        until(lambda: api.partition("__activity").newestOffset >= 2 + 3 + 3 - 1)
        last = api.subscribe("__activity", startPosition=LATEST).next()
        for number in range(3):  # each one is paused again later
            api.publish(f"s{number}")
        until(lambda: all(api.stream(f"s{number}").partitions[0].paused for number in range(3)))
        events = [message("ActivityStreamEvent").FromString(item.value) for item in api.read("__activity")]
    touched = {event.pauseStreamOp.stream or event.resumeStreamOp.stream for event in events} - {""}
    assert touched == {"s0", "s1", "s2"}
    assert len(events) > last.offset
