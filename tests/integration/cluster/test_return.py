"""A replica comes back after the leader has removed what it would need next."""

from pathlib import Path

from tests.integration.cluster.brokers import NAMES, cluster, until
from tests.integration.cluster.test_replicate import LEADER, created, high_watermark, isr, publish, verified

KEEPS = {
    "retentionMaxMessages": {"value": 100},
    "segmentMaxBytes": {"value": 8192},
    "cleanerInterval": {"value": 50},
}
ROUNDS = 20


async def test_a_replica_whose_next_records_were_removed_begins_again_behind_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, streams__retention_min_age_ms=0) as brokers:
        leader = await created(brokers, "orders", **KEEPS)
        away = next(name for name in NAMES if name != leader)
        assert (await publish(brokers.running[leader], "orders", [b"seen by all"], LEADER))[0].ack.offset == 1

        async def is_seen() -> bool:
            return await high_watermark(brokers.running[leader], "orders") == 2

        await until(is_seen)
        await brokers.kill(away)
        for _ in range(ROUNDS):
            await publish(brokers.running[leader], "orders", [b"x" * 100] * 100, LEADER)

        async def is_out() -> bool:
            committed = await high_watermark(brokers.running[leader], "orders")
            return committed == 2 + 100 * ROUNDS and away not in await isr(brokers, leader, "orders")

        await until(is_out)
        first = tmp_path / leader / "data"

        async def is_removed() -> bool:
            return not list(first.glob("partitions/*/" + "0" * 20 + ".seg"))

        await until(is_removed)
        await brokers.start(away)
        await brokers.said(away, "begins again at offset")

        async def is_back() -> bool:
            return away in await isr(brokers, leader, "orders")

        await until(is_back)
        await publish(brokers.running[leader], "orders", [b"after"], LEADER)

        async def is_committed() -> bool:
            return await high_watermark(brokers.running[leader], "orders") == 3 + 100 * ROUNDS

        await until(is_committed)
        await brokers.stop()
    batches = {name: verified(tmp_path / name / "data") for name in NAMES}
    logs = {name: {base: (link, chain) for base, link, chain in found} for name, found in batches.items()}
    both = logs[leader].keys() & logs[away].keys()
    assert max(logs[leader]) in both
    assert all(logs[leader][base] == logs[away][base] for base in both)
