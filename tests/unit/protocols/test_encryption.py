"""Encrypted streams: the precondition, the data key that the proposer makes, and a change of the master key."""

from bascule.metadata import DataKey
from bascule.metadata.model import incarnation_of
from bascule.protocols.grpc_status import Status

from tests.unit.control.rig import Rig
from tests.unit.protocols.test_liftbridge import bad, good


def keys(rig: Rig) -> tuple[DataKey, ...]:
    stream = rig.controller.state.stream("default", "s")
    assert stream is not None
    return stream.data_keys


async def test_an_encrypted_stream_gets_a_data_key_which_its_partitions_are_opened_with(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=2, encryption={"value": True})
    assert keys(rig) == (DataKey(1, "a", "wrapped-1"),)
    for number in range(2):
        spec = rig.plane.opened[incarnation_of(2, number)]
        assert spec["data_keys"] == [{"number": 1, "master": "a", "wrapped": "wrapped-1"}]


async def test_a_stream_that_does_not_ask_for_it_is_not_encrypted(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", encryption={"value": False})
    assert keys(rig) == ()
    assert rig.plane.opened[incarnation_of(2, 0)]["data_keys"] == []


async def test_without_a_usable_master_key_creation_fails_and_plain_streams_do_not(rig: Rig) -> None:
    rig.plane.master = None
    code, text = await bad(rig, "CreateStream", name="s", subject="s", encryption={"value": True})
    assert code is Status.FAILED_PRECONDITION
    assert text == "Failed on preconditions for stream's encryption handler: invalid AES key size 5"
    await good(rig, "CreateStream", name="s", subject="s")


async def test_another_master_key_means_a_new_data_key_once(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", encryption={"value": True})
    await good(rig, "CreateStream", name="plain", subject="t")
    await rig.controller.rotate_data_keys("a", 5.0)
    assert len(keys(rig)) == 1
    rig.plane.master = "b"
    for _ in range(2):
        await rig.controller.rotate_data_keys("b", 5.0)
        assert keys(rig) == (DataKey(1, "a", "wrapped-1"), DataKey(2, "b", "wrapped-2"))
    await rig.reconciler.wait_applied(rig.controller.state.index)
    assert [item["number"] for item in rig.plane.opened[incarnation_of(2, 0)]["data_keys"]] == [1, 2]


async def test_a_master_key_that_cannot_be_used_changes_nothing(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", encryption={"value": True})
    rig.plane.master = None
    await rig.controller.rotate_data_keys("b", 5.0)
    assert len(keys(rig)) == 1
