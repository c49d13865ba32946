"""When a purge forgoes the grace period of the files it removes."""

from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.errors import UnavailableError, error
from bascule.metadata.rejection import RejectedError
from bascule.protocols.router import AdminRequest

from tests.unit.control.rig import Rig, stream_request


async def purge(rig: Rig, **fields: Any) -> dict[str, Any]:
    body = message("PurgeStreamRequest")(name="orders", **fields).SerializeToString()
    answer = await rig.admin["admin/PurgeStream"](AdminRequest("admin/PurgeStream", body, "", 5.0))
    found = message("PurgeStreamResponse").FromString(answer)
    return {"records": found.records, "at_once": found.at_once}


async def created(rig: Rig) -> int:
    await rig.controller.create_stream(stream_request(), 5.0)
    stream = rig.controller.state.stream("default", "orders")
    assert stream is not None
    return stream.partitions[0].incarnation


@pytest.mark.parametrize(("full", "fields", "at_once"), [
    (False, {}, False),
    (False, {"now": False}, False),
    (False, {"now": True}, True),
    (True, {}, True),
    (True, {"now": False}, True),
])  # fmt: skip
async def test_the_grace_is_forgone_on_request_and_on_a_full_disk(
    rig: Rig, full: bool, fields: dict[str, Any], at_once: bool
) -> None:
    incarnation = await created(rig)
    rig.plane.full = full
    assert await purge(rig, dry_run=True, **fields) == {"records": 0, "at_once": at_once}
    assert incarnation in rig.plane.opened
    assert await purge(rig, **fields) == {"records": 0, "at_once": at_once}
    assert rig.plane.named("delete at once" if at_once else "delete") == [[incarnation]]
    assert rig.plane.named("delete" if at_once else "delete at once") == []


async def test_space_is_freed_before_the_new_partitions_are_opened(rig: Rig) -> None:
    await created(rig)
    rig.plane.calls.clear()
    await purge(rig, now=True)
    assert [call for call, _ in rig.plane.calls if call in {"delete at once", "open"}] == ["delete at once", "open"]


async def test_a_purge_that_failed_leaves_the_grace_of_a_later_deletion(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnation = await created(rig)

    async def refuse(*_: object) -> None:
        raise error("unavailable", "not now")

    with monkeypatch.context() as patch:
        patch.setattr(rig.controller, "propose", refuse)
        with pytest.raises(UnavailableError):
            await rig.controller.purge_stream("default", "orders", now=True, dry_run=False, timeout_s=5.0)
    await rig.controller.delete_stream("default", "orders", 5.0)
    assert rig.plane.named("delete") == [[incarnation]]
    with pytest.raises(RejectedError):
        await rig.controller.purge_stream("default", "orders", now=True, dry_run=False, timeout_s=5.0)
