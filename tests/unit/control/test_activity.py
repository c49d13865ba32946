"""Events reach the activity stream once each, in order, whatever fails in between."""

import asyncio

from bascule.control.activity import ActivityCodec, ActivityWriter
from bascule.metadata import Activity

from tests.unit.control.fake_plane import Disk, until
from tests.unit.control.rig import Rig, running, stream_request

CODEC = ActivityCodec(lambda event: b"%d %s" % (event.id, event.name.encode()), lambda value: int(value.split()[0]))


def writer(rig: Rig) -> ActivityWriter:
    return ActivityWriter(rig.controller, rig.plane, CODEC, 5.0)


def written(rig: Rig) -> list[str]:
    stream = rig.controller.state.stream("default", "__activity")
    assert stream is not None
    return [value.split()[1].decode() for value in rig.plane.disk.records.get(stream.partitions[0].incarnation, [])]


async def test_events_are_written_in_order_and_settled(rig: Rig) -> None:
    it = writer(rig)
    await rig.controller.create_stream(stream_request("before"), 5.0)
    await it.prepare("ns.activity", 5.0, on=True)
    task = asyncio.create_task(it.run())
    await rig.controller.create_stream(stream_request("one"), 5.0)
    await rig.controller.create_stream(stream_request("two"), 5.0)
    await until(lambda: written(rig) == ["__activity", "one", "two"])
    await until(lambda: not rig.controller.state.activity)
    task.cancel()


async def test_what_was_written_before_a_crash_is_not_written_again() -> None:
    disk = Disk()
    async with running(disk) as rig:
        await writer(rig).prepare("ns.activity", 5.0, on=True)
        await rig.controller.create_stream(stream_request("one"), 5.0)
        pending: tuple[Activity, ...] = rig.controller.state.activity
        stream = rig.controller.state.stream("default", "__activity")
        assert stream is not None
        # the first event reaches the stream, and the broker ends before it is settled
        rig.plane.append(stream.partitions[0].incarnation, [CODEC.encode(pending[0])], 1000)
    async with running(disk) as rig:
        task = asyncio.create_task(writer(rig).run())
        await until(lambda: not rig.controller.state.activity)
        assert written(rig) == ["__activity", "one"]
        task.cancel()


async def test_switching_it_off_forgets_what_waits(rig: Rig) -> None:
    it = writer(rig)
    await it.prepare("ns.activity", 5.0, on=True)
    assert rig.controller.state.activity
    await it.prepare("ns.activity", 5.0, on=False)
    await rig.controller.create_stream(stream_request("one"), 5.0)
    assert rig.controller.state.activity == ()
    await rig.controller.delete_stream("default", "one", 5.0)
    assert rig.controller.state.activity == ()
