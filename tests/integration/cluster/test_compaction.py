"""Replicas compact what all of them have, each for itself, and stay one history."""

from pathlib import Path

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.cluster.test_replicate import created, high_watermark, isr, verified

SETTINGS = {
    "compactEnabled": {"value": True},
    "segmentMaxBytes": {"value": 8192},
    "cleanerInterval": {"value": 50},
}
KEYS = 20
REMOVED = "records removed from"


async def publish(brokers: Brokers, leader: str, rounds: range) -> None:
    """One record of each key in each round."""
    async with brokers.client(leader) as client:
        for number in rounds:
            keys = [b"key-%d" % key for key in range(KEYS)]
            await client.publish_many("orders", [b"%d" % number + b"x" * 100] * KEYS, keys=keys)


async def latest(brokers: Brokers, name: str) -> dict[bytes | None, bytes]:
    """What a replica has as the last value of each key, its number alone."""
    async with brokers.client(name) as client:
        subscription = client.subscribe("orders", stop="latest", from_replica=True)
        records = [record async for batch in subscription for record in batch]
    return {record.key: (record.value or b"").rstrip(b"x") for record in records}


async def test_every_replica_compacts_what_all_have_and_one_that_was_away_continues(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, "orders", **SETTINGS)
        await publish(brokers, leader, range(40))
        for name in NAMES:
            await brokers.said(name, REMOVED)
        away = next(name for name in NAMES if name != leader)
        await brokers.kill(away)
        await publish(brokers, leader, range(40, 80))
        kept = await high_watermark(brokers.running[leader], "orders")
        await brokers.start(away)

        async def is_back() -> bool:
            return away in await isr(brokers, leader, "orders")

        await until(is_back)
        await publish(brokers, leader, range(80, 120))
        before = {name: brokers.heard(name, REMOVED) for name in NAMES}
        await publish(brokers, leader, range(120, 160))
        for name in NAMES:
            await brokers.said(name, REMOVED, before[name])
        expected = {b"key-%d" % key: b"159" for key in range(KEYS)} | {None: b"first"}

        async def is_read() -> bool:
            return all([await latest(brokers, name) == expected for name in NAMES])

        await until(is_read)
        await brokers.stop()
    logs = {name: {base: (link, chain) for base, link, chain in verified(tmp_path / name / "data")} for name in NAMES}
    end = 1 + 160 * KEYS
    for name in NAMES:
        both = logs[leader].keys() & logs[name].keys()
        assert max(logs[leader]) in both
        assert all(logs[leader][base] == logs[name][base] for base in both)
        assert sum(base < kept for base in logs[name]) < kept, "it was compacted"
    assert max(logs[leader]) < end
