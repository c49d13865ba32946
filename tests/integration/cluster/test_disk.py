"""The disk of a leader hangs or is full: another replica leads, and nothing that was acknowledged is lost."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from tests.integration.cluster.brokers import NAMES, Brokers, until
from tests.integration.cluster.test_failover import STREAM, led_in_sync, stored
from tests.integration.cluster.test_replicate import ALL, created
from tests.torture.driver import shim

SOME = 20
"""Records that are acknowledged before and after the disk falls ill."""


@asynccontextmanager
async def cluster_on_disks(directory: Path, below: str, patch: pytest.MonkeyPatch) -> AsyncGenerator[Brokers]:
    """Three brokers. A file `ill` beside the data of each says what is wrong with its files below a folder."""
    # One thread that hangs must not be all there are.
    brokers = Brokers(directory, broker__runtime_threads=4)
    patch.setenv("LD_PRELOAD", str(shim()))
    try:
        for name in NAMES:
            patch.setenv("SHIM_PATH", str(directory / name / "data" / below))
            patch.setenv("SHIM_NOW", str(directory / name / "ill"))
            brokers.running[name] = await brokers.launch(name)
        patch.delenv("LD_PRELOAD")
        await brokers.ready()
        yield brokers
    finally:
        for name in NAMES:
            (directory / name / "ill").unlink(missing_ok=True)
        await brokers.stop()


class Publisher:
    """Publishes one record after the other through a broker, which hands them to the leader.

    Attributes:
        acked: value by offset, as acknowledged by all.
    """

    def __init__(self, brokers: Brokers, through: str) -> None:
        self._brokers = brokers
        self._through = through
        self.acked: dict[int, bytes] = {}

    async def run(self) -> None:
        """Publish until cancelled; what was not acknowledged is not published again."""
        number = 0
        while True:
            value = b"%d" % number
            number += 1
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                async with asyncio.timeout(3):
                    answer = await self._brokers.call(
                        self._through, "Publish", stream=STREAM, value=value, ackPolicy=ALL
                    )
                    assert answer.ack.offset not in self.acked, "one offset was acknowledged twice"
                    self.acked[answer.ack.offset] = value

    async def more(self) -> None:
        """Wait for more acknowledged records."""
        enough = len(self.acked) + SOME

        async def is_enough() -> bool:
            return len(self.acked) >= enough

        await until(is_enough)


async def leader_at(brokers: Brokers, name: str) -> str:
    """The leader as a broker knows it; empty = none."""
    answer = await brokers.call(name, "FetchMetadata", streams=[STREAM])
    return str(answer.streamMetadata[0].partitions[0].leader)


@asynccontextmanager
async def published(brokers: Brokers, through: str) -> AsyncGenerator[Publisher]:
    """Records are published as long as the block lasts; then all that were acknowledged are there."""
    publisher = Publisher(brokers, through)
    publishing = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing
    found = await stored(brokers, await led_in_sync(brokers))
    lost = {offset: value for offset, value in publisher.acked.items() if found.get(offset) != value}
    assert not lost, f"{len(lost)} of {len(publisher.acked)} acknowledged records are lost"


async def led(brokers: Brokers, *, by_the_controller: bool) -> list[str]:
    """A stream whose three replicas are in sync, led by the controller or by another broker; its replicas, the leader
    first: in this order others are chosen.
    """
    number = NAMES.index(await brokers.settled()) + (0 if by_the_controller else 1)
    for filler in range(number % len(NAMES)):
        await brokers.created("b1", f"filler-{filler}")
    leader = await created(brokers, STREAM)
    assert (leader == await brokers.settled()) == by_the_controller
    await led_in_sync(brokers)
    answer = await brokers.call(leader, "FetchMetadata", streams=[STREAM])
    replicas = [str(name) for name in answer.streamMetadata[0].partitions[0].replicas]
    assert replicas[0] == leader
    return replicas


RESIGNS = "another replica is to lead it"
FENCED = "a broker is silent, and is fenced"


@pytest.mark.parametrize(
    ("below", "ill", "by_the_controller"),
    [
        ("", "hold sync", False),
        ("", "hold sync", True),
        ("partitions", "hold write", False),
        ("partitions", "full", False),
    ],
)
async def test_another_replica_leads_while_the_disk_of_the_leader_is_ill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str, ill: str, *, by_the_controller: bool
) -> None:
    async with cluster_on_disks(tmp_path, below, monkeypatch) as brokers:
        first, *others = await led(brokers, by_the_controller=by_the_controller)
        async with published(brokers, others[0]) as publisher:
            await publisher.more()
            (tmp_path / first / "ill").write_text(ill)

            async def is_replaced() -> bool:
                return await leader_at(brokers, others[0]) in others

            await until(is_replaced)
            if ill != "hold write" and not by_the_controller:
                # It has given up by itself. One whose threads all hang, or who cannot commit, is fenced.
                assert brokers.heard(first, RESIGNS)
                assert [name for name in NAMES if brokers.heard(name, FENCED)] == []
            await publisher.more()
            (tmp_path / first / "ill").unlink()
            await led_in_sync(brokers)
            await publisher.more()


async def test_a_replica_can_lead_again_when_its_disk_has_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_on_disks(tmp_path, "", monkeypatch) as brokers:
        first, second, third = await led(brokers, by_the_controller=False)

        async def is_led_by(name: str) -> bool:
            return await leader_at(brokers, third) == name

        async with published(brokers, third):
            (tmp_path / first / "ill").write_text("hold sync")
            await until(lambda: is_led_by(second))
            (tmp_path / first / "ill").unlink()
            await brokers.said(first, "its replica here can lead again")
            await led_in_sync(brokers)
            (tmp_path / second / "ill").write_text("hold sync")
            await until(lambda: is_led_by(first))
            (tmp_path / second / "ill").unlink()
            await led_in_sync(brokers)
