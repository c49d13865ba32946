"""Measure everything the project claims, side by side with JetStream, and write `bench/results/`.

Every figure is the median of three runs; peers run in the same session on the same machine; every report has the disk's
own sync time. Run with `make bench`; `--only NAME` (repeatable) runs a part, `--quick` does one short run of each.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from arrow import fill, flight_read
from encrypted import encryption
from iggy import iggy
from processes import Broker, NatsServer
from publishers import publishers
from scaling import scaling
from sdk import sdk
from secured import Secured
from session import ROOT, Bench, Figures
from spark_parts import (
    spark_archive,
    spark_idle,
    spark_latency,
    spark_memory,
    spark_merge,
    spark_read,
    spark_replay,
    spark_tiered,
    spark_write,
)
from start import start
from storage import compaction, dirty, memory, slow_sync, verify


def disk(bench: Bench) -> None:
    """The disk's own sync time, and the cost of touching memory."""
    rate = bench.touch()
    bench.figures["memory, touched"] = {"bytes_per_second": rate}
    print(f"{'memory, touched':50} {rate / 1e6:14,.0f} MB/s", flush=True)
    bench.measure("disk sync 4 KiB", None, lambda: bench.drive("sync", dir=bench.folder))


async def _create(address: str, name: str, subject: str) -> None:
    from gufo.liftbridge.client import LiftbridgeClient

    async with LiftbridgeClient([address]) as client:
        await client.create_stream(name, subject=subject, wait_for_stream=True)


async def _stored(address: str, name: str) -> int:
    from gufo.liftbridge.client import LiftbridgeClient

    async with LiftbridgeClient([address]) as client:
        return (await client.get_partition_metadata(name, 0)).high_watermark + 1


def liftbridge(bench: Bench) -> None:
    """Publish and Subscribe, durable, on a standalone broker."""
    start = time.perf_counter()
    broker = Broker.start(bench.folder / "liftbridge")
    ready = time.perf_counter() - start
    try:
        address = broker.ready["address"]
        for name in ("unary", "async256", "async1024"):
            asyncio.run(_create(address, name, f"bench.{name}"))
        load = {"address": address, "seconds": bench.seconds}
        for flight in (1, 64):
            bench.measure(
                f"publish unary, {flight} in flight",
                broker,
                lambda flight=flight: bench.drive("publish", stream="unary", in_flight=flight, **load),
            )
        bench.measure(
            "publish unary, 64 in flight, 1024 B",
            broker,
            lambda: bench.drive("publish", stream="unary", in_flight=64, bytes=1024, **load),
        )
        for flight, size in ((512, 256), (4096, 256), (512, 1024)):
            bench.measure(
                f"publish async, {flight} in flight, {size} B",
                broker,
                lambda flight=flight, size=size: bench.drive(
                    "publish-async", stream=f"async{size}", in_flight=flight, bytes=size, **load
                ),
            )
        bench.judge_rate("publish unary, 64 in flight, 1024 B", 20_000, p99_ms=15)
        bench.judge_rate("publish async, 512 in flight, 1024 B", 300_000)
        bench.measure(
            "subscribe, stored",
            broker,
            lambda: bench.drive("subscribe", address=address, stream="async256", count=bench.count),
        )
        bench.figures["broker"] = {"ready_seconds": ready, "peak_mib": broker.peak_mib(), **broker.ready}
    finally:
        broker.stop()


def secured(bench: Bench) -> None:
    """The cost of TLS and authorization, as ratios to the same load without; the three brokers alternate."""
    import bascule

    folder = bench.folder / "secured"
    made = Secured(folder / "ca")
    modes = {"plain text": None, "mutual TLS": made.settings(policy=False), "with a policy": made.settings(policy=True)}
    with ExitStack() as stack:
        loads: dict[str, Figures] = {}
        for mode, settings in modes.items():
            broker = Broker.start(folder / mode.replace(" ", "-"), settings)
            stack.callback(broker.stop)
            address = broker.ready["address"]
            with bascule.connect(made.url(address) if settings else f"bascule://{address}") as client:
                client.create_stream("secured", "bench.secured")
            loads[mode] = {"address": address, "stream": "secured", **(made.load() if settings else {})}
        kinds: dict[str, Callable[[Figures], Figures]] = {
            "publish unary": lambda load: bench.drive("publish", in_flight=64, seconds=bench.seconds, **load),
            "publish async": lambda load: bench.drive(
                "publish-async", in_flight=4096, bytes=256, seconds=bench.seconds, **load
            ),
            "subscribe": lambda load: bench.drive("subscribe", count=2 * bench.count, **load),
        }
        for kind, run in kinds.items():
            runs = {f"{kind}, {mode}": lambda load=load, run=run: run(load) for mode, load in loads.items()}
            bench.compare(None, runs)
            plain, tls, policy = runs
            share = bench.ratio(f"{kind}, TLS to plain text", tls, plain)
            print(f"  {kind}: TLS {share:.2f} of plain text", flush=True)
            share = bench.ratio(f"{kind}, a policy to TLS", policy, tls)
            bench.judge(f"{kind}: with a policy, share of TLS without", share, least=0.85)


def ingest(bench: Bench) -> None:
    """Plain NATS messages into a stream; none may be lost."""
    broker = Broker.start(bench.folder / "ingest")
    number = iter(range(100))

    def once() -> Figures:
        name = f"ingest{next(number)}"
        asyncio.run(_create(broker.ready["address"], name, f"bench.{name}"))
        count = 2 * bench.count
        start = time.perf_counter()
        sent = bench.drive("nats-publish", url=broker.ready["nats_url"], subject=f"bench.{name}", count=count)
        have, limit = 0, time.monotonic() + 30
        while have < count and time.monotonic() < limit:
            have = asyncio.run(_stored(broker.ready["address"], name))
        seconds = time.perf_counter() - start
        return {
            "count": have,
            "lost": count - have,
            "seconds": seconds,
            "rate": have / seconds,
            "sent_rate": sent["rate"],
        }

    try:
        bench.measure("plain NATS to stored", broker, once)
    finally:
        broker.stop()


def jetstream(bench: Bench) -> None:
    """JetStream as the peer: the same driver and the same nats-server binary."""
    for sync_always in (False, True):
        mode = "sync always" if sync_always else "default"
        server = NatsServer.start(bench.folder / f"jetstream-{sync_always}", sync_always=sync_always)
        try:
            common = {"url": server.url, "stream": "bench", "subject": "bench"}
            bench.drive("jetstream-create", **common)
            load = {**common, "in_flight": 512, "bytes": 256, "seconds": bench.seconds}
            bench.measure(
                f"JetStream publish async ({mode})", server, lambda load=load: bench.drive("jetstream-publish", **load)
            )
            if not sync_always:
                count = min(
                    bench.count, int(bench.figures[f"JetStream publish async ({mode})"]["count"] * bench.runs * 0.9)
                )
                for kind in ("push", "pull"):
                    bench.measure(
                        f"JetStream ordered consumer ({kind})",
                        server,
                        lambda kind=kind, count=count, common=common: bench.drive(
                            "jetstream-consume", mode=kind, count=count, **common
                        ),
                    )
        finally:
            server.stop()


def arrow(bench: Bench) -> None:
    """Flight to pyarrow."""
    broker = Broker.start(bench.folder / "arrow")
    try:
        address = broker.ready["address"]
        for size, rows in ((100, 4 * bench.count), (1024, bench.count)):
            name = f"arrow{size}"
            asyncio.run(_create(address, name, f"bench.{name}"))
            bench.measure(
                f"Flight DoPut, {size} B",
                broker,
                lambda name=name, size=size, rows=rows: fill(address, name, size, rows // bench.runs),
            )
            for columns in ("8 columns", "value only"):
                bench.measure(
                    f"Flight DoGet to pyarrow, {columns}, {size} B",
                    broker,
                    lambda name=name, columns=columns: flight_read(address, name, columns),
                )
    finally:
        broker.stop()


PARTS = {
    "disk": disk,
    "start": start,
    "liftbridge": liftbridge,
    "secured": secured,
    "sdk": sdk,
    "ingest": ingest,
    "jetstream": jetstream,
    "publishers": publishers,
    "arrow": arrow,
    "iggy": iggy,
    "spark_read": spark_read,
    "spark_write": spark_write,
    "spark_archive": spark_archive,
    "spark_replay": spark_replay,
    "spark_tiered": spark_tiered,
    "spark_merge": spark_merge,
    "spark_latency": spark_latency,
    "spark_idle": spark_idle,
    "spark_memory": spark_memory,
    "dirty": dirty,
    "slow_sync": slow_sync,
    "compaction": compaction,
    "verify": verify,
    "scaling": scaling,
    "memory": memory,
    "encryption": encryption,
}


def main() -> None:
    """Run the parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part (repeatable); default all")
    parser.add_argument(
        "--quick", action="store_true", help="one short run of each: to check that it works, not to quote"
    )
    parser.add_argument("--profile", default="release", help="cargo profile of the driver: release or fast")
    parser.add_argument("--folder", type=Path, default=ROOT, help="a folder on the disk to measure; default: here")
    options = parser.parse_args()
    bench = Bench(quick=options.quick, profile=options.profile, folder=options.folder)
    try:
        for name in options.only or PARTS:
            PARTS[name](bench)
            bench.clear()
            disk(bench)
    finally:
        bench.close()
    print(f"bench: wrote {bench.write().relative_to(ROOT)}")


if __name__ == "__main__":
    main()
