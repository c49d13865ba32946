"""The metadata log of a cluster is shortened, and a broker that was away for longer follows by a snapshot."""

import signal
from pathlib import Path

from tests.integration.cluster.brokers import Brokers, cluster, until

EVERY = 16
SENT = "took the metadata from a snapshot of another broker"


async def many(brokers: Brokers, name: str, prefix: str, count: int) -> None:
    """Create this many streams through a broker."""
    for number in range(count):
        await brokers.created(name, f"{prefix}-{number:02}")


def stored(brokers: Brokers, name: str) -> list[int]:
    """The snapshots that a broker has stored, by the last entry that each covers."""
    lines = brokers.running[name].lines()
    return [line["index"] for line in lines if line.get("message") == "stored a snapshot of the metadata"]


async def shortened(brokers: Brokers, name: str, behind: int) -> None:
    """Wait until a broker has two snapshots that cover everything up to an entry."""

    async def is_shorter() -> bool:
        return len([index for index in stored(brokers, name) if index > behind]) > 1

    await until(is_shorter)


async def test_a_broker_that_missed_entries_of_two_snapshots_follows_and_keeps_its_files(tmp_path: Path) -> None:
    async with cluster(tmp_path, cluster__snapshot_entries=EVERY) as brokers:
        for number in range(3):
            await brokers.created("b1", f"old-{number}")
        await brokers.seen("old-2")
        here = [name for name in ("old-0", "old-1", "old-2") if await brokers.created("b3", name) == "b3"]
        assert here, "the streams are spread over the brokers"
        answer = await brokers.call("b3", "FetchMetadata")
        old = (await brokers.status("b3")).index
        assert len(answer.streamMetadata) == 3
        directories = {item.name for item in (tmp_path / "b3" / "data" / "partitions").iterdir()}

        await brokers.kill("b3")
        await brokers.call("b1", "DeleteStream", name=here[0])
        await many(brokers, "b1", "new", 3 * EVERY)
        for name in ("b1", "b2"):
            await shortened(brokers, name, old)
        # Killed at any moment of what follows, it begins again.
        for _ in range(2):
            brokers.running["b3"] = await brokers.launch("b3")
            await brokers.said("b3", "is connected")
            await brokers.kill("b3")
        await brokers.start("b3")
        await brokers.seen("new-47")
        assert await brokers.streams("b3") == await brokers.streams("b1")
        runs = sorted((tmp_path / "b3").glob("ready-*.log"))
        assert any(SENT in run.read_text() for run in runs), "it was sent a snapshot"

        # Nothing is deleted that an entry deleted which it has not seen.
        left = {item.name.partition(".")[0] for item in (tmp_path / "b3" / "data" / "partitions").iterdir()}
        assert directories <= left
        await brokers.created("b3", "later")
        await brokers.seen("later")

        # The log behind the snapshot is whole: a restart needs nothing of the others but their votes.
        await brokers.running.pop("b3").end(signal.SIGTERM)
        await brokers.start("b3")
        assert await brokers.streams("b3") == await brokers.streams("b1")
        assert brokers.heard("b3", SENT) == 0


async def test_a_damaged_snapshot_is_passed_over_and_without_any_the_start_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, cluster__snapshot_entries=EVERY) as brokers:
        await many(brokers, "b1", "s", 3 * EVERY)
        await brokers.seen("s-47")
        await shortened(brokers, "b3", 0)
        await brokers.kill("b3")
        metadata = tmp_path / "b3" / "data" / "metadata"
        newest = max(metadata.glob("snapshot-*"))
        whole = newest.read_bytes()
        newest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        await brokers.start("b3")
        assert await brokers.streams("b3") == await brokers.streams("b1")

        await brokers.kill("b3")
        older, newest = sorted(metadata.glob("snapshot-*"))[-2:]
        for damaged in (older, newest):
            damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        life = await brokers.launch("b3")
        assert await life.end(signal.SIGCONT) != 0
        assert "no snapshot is readable" in life.log_file.read_text()
