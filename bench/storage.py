"""The cost of durability: many dirty partitions, slow syncs, compaction, checks, memory."""

import statistics
import time

import bascule
from bascule import StreamOptions
from processes import Broker
from session import ROOT, Bench

MANY = 50
"""Number of partitions that are dirty at the same time."""
IDLE = 1000
DELAYS_US = {0: None, 1000: 500_000, 5000: 200_000}
"""Time added to each sync, and the minimum rate of asynchronous publishing with 4,096 in flight."""


def _create(address: str, name: str, partitions: int = 1) -> None:
    with bascule.connect(f"bascule://{address}") as client:
        client.create_stream(name, f"bench.{name}", options=StreamOptions(partitions=partitions))


def dirty(bench: Bench) -> None:
    """One partition and many, with the same total number in flight: with a broker, and with the engine alone."""
    broker = Broker.start(bench.folder / "dirty")
    try:
        address = broker.ready["address"]
        for name, partitions in (("one", 1), ("many", MANY)):
            _create(address, name, partitions)
        for command, in_flight in (("publish", 64), ("publish-async", 512)):
            what = f"{command}, {in_flight} in flight, 1024 B"
            names = {f"{what}, 1 partition": ("one", 1), f"{what}, {MANY} partitions": ("many", MANY)}
            bench.compare(
                broker,
                {
                    name: lambda command=command, in_flight=in_flight, to=to: bench.drive(
                        command, address=address, stream=to[0], partitions=to[1], in_flight=in_flight, bytes=1024,
                        seconds=bench.seconds,
                    )
                    for name, to in names.items()
                },
            )  # fmt: skip
            one, many = names
            share = bench.ratio(f"{what}, {MANY} to 1", many, one)
            amplification = bench.figures[many]["bytes_on_disk_each"] / 1024
            bench.judge(f"{what}: share with {MANY} partitions dirty", share, least=0.6)
            print(f"  write amplification with {MANY} partitions: {amplification:.2f}", flush=True)
    finally:
        broker.stop()
    _dirty_engine(bench)


def _dirty_engine(bench: Bench) -> None:
    rows = bench.engine("dirty")
    bench.figures["engine, dirty partitions"] = {"rows": rows}
    for in_flight in (64, 512):
        one, many = (
            next(
                row
                for row in rows
                if (row["partitions"], row["in_flight"], row["journal_from"]) == (partitions, in_flight, journal)
            )
            for partitions, journal in ((1, None), (MANY, 1))
        )
        share = many["rate"] / one["rate"]
        print(
            f"engine, {in_flight} in flight: {one['rate']:,.0f} /s with 1 partition, {many['rate']:,.0f} /s with"
            f" {MANY}, write amplification {many['write_amplification']:.2f}",
            flush=True,
        )
        bench.judge(f"engine, {in_flight} in flight: share with {MANY} partitions dirty", share, least=0.6)


def slow_sync(bench: Bench) -> None:
    """The rate on disks with slower syncs: the preloaded shim pauses before each sync."""
    shim = ROOT / "target" / bench.profile / "libbascule_shim.so"
    if not shim.is_file():
        # A missing library is silently not preloaded.
        raise RuntimeError(f"{shim} is missing: cargo build --profile {bench.profile} -p bascule-shim")
    for delay, least in DELAYS_US.items():
        folder = bench.folder / f"slow-{delay}"
        slow = {"LD_PRELOAD": str(shim), "SHIM_PATH": str(folder / "data"), "SHIM_SYNC_DELAY_US": str(delay)}
        broker = Broker.start(folder, environment=slow if delay else None)
        try:
            address = broker.ready["address"]
            _create(address, "one")
            _create(address, "many", MANY)
            for command, load in (
                ("publish", {"in_flight": 64, "bytes": 1024, "partitions": 1}),
                ("publish-async", {"in_flight": 512, "bytes": 1024, "partitions": 1}),
                ("publish-async", {"in_flight": 512, "bytes": 1024, "partitions": MANY}),
                ("publish-async", {"in_flight": 4096, "bytes": 256, "partitions": 1}),
            ):
                stream = "one" if load["partitions"] == 1 else "many"
                load |= {"address": address, "stream": stream, "seconds": bench.seconds}
                name = (
                    f"{command}, {load['in_flight']} in flight, {load['bytes']} B, {load['partitions']} dirty,"
                    f" + {delay / 1000:g} ms"
                )
                bench.measure(name, broker, lambda command=command, load=load: bench.drive(command, **load))
            if least is not None:
                bench.judge_rate(f"publish-async, 4096 in flight, 256 B, 1 dirty, + {delay / 1000:g} ms", least)
        finally:
            broker.stop()


def compaction(bench: Bench) -> None:
    """Compaction of 1 GiB during publishes; the engine alone, without the broker's rate limit."""
    for _ in range(bench.runs):
        (row,) = bench.engine("compaction")
        bench.figures.setdefault("engine, compaction of 1 GiB", {"rows": []})["rows"].append(row)
    rows = bench.figures["engine, compaction of 1 GiB"]["rows"]
    bench.judge("compaction of 1 GiB, MB/s", statistics.median(row["mb_per_second"] for row in rows), least=150)
    factor = statistics.median(row["p99_ms_with"] / row["p99_ms_without"] for row in rows)
    bench.judge("publish p99 while it is compacted, of that without", factor, most=2)


def verify(bench: Bench) -> None:
    """Complete logs in the page cache, checked like `bascule log verify` and the scrub, on one core."""
    rows = bench.engine("verify")
    bench.figures["engine, verify"] = {"rows": rows}
    for row in rows:
        shape = f"batches of {row['records']} x {row['bytes']} B"
        bench.judge(f"verify, {shape}, GB/s", row["verify_gb_per_second"], least=1)
        bench.judge(f"scrub, {shape}, GB/s", row["scrub_gb_per_second"], least=1)


def memory(bench: Bench) -> None:
    """Resident memory of a broker: empty, with many idle partitions, and the maximum under load."""
    broker = Broker.start(bench.folder / "memory")
    try:
        address = broker.ready["address"]
        resident = {"empty": broker.resident_mib()}
        _create(address, "idle", IDLE)
        _create(address, "one")
        time.sleep(bench.seconds)  # memory used to create them is released
        resident["idle"] = broker.resident_mib()
        for command, in_flight in (("publish", 64), ("publish-async", 4096)):
            bench.drive(
                command, address=address, stream="one", in_flight=in_flight, bytes=1024, seconds=bench.seconds
            )  # fmt: skip
        resident["peak"] = broker.peak_mib()
    finally:
        broker.stop()
    bench.figures["memory, MiB"] = resident
    print(
        f"memory: {resident['empty']:.0f} MiB empty, {resident['idle']:.0f} MiB with {IDLE} partitions,"
        f" {resident['peak']:.0f} MiB at most under load",
        flush=True,
    )
    bench.judge(f"memory with {IDLE} idle partitions, MiB", resident["idle"], most=300)
