"""Unmodified JetStream publishers on JetStream and on a stream with natsAcks: the same driver, alternating."""

import bascule
from processes import Broker, NatsServer
from session import Bench

BAR = 12
"""Minimum rate of Bascule as a multiple of JetStream's with `sync_interval: always`."""


def publishers(bench: Bench) -> None:
    """512 acks in flight, 1 KiB, every ack durable."""
    server = NatsServer.start(bench.folder / "publishers-jetstream", sync_always=True)
    try:
        broker = Broker.start(bench.folder / "publishers")
        try:
            _compare(bench, server, broker)
        finally:
            broker.stop()
    finally:
        server.stop()


def _compare(bench: Bench, server: NatsServer, broker: Broker) -> None:
    common = {"stream": "bench", "subject": "bench"}
    bench.drive("jetstream-create", url=server.url, **common)
    with bascule.connect(f"bascule://{broker.ready['address']}") as client:
        client.create_stream("bench", "bench", options=bascule.StreamOptions(nats_acks="jetstream"))
    loads = {"JetStream, sync always": server.url, "natsAcks": broker.ready["nats_url"]}
    for ids in (False, True):
        # A stream stores a million ids for two minutes and then rejects new ones: all runs together stay below.
        seconds = min(bench.seconds, 2) if ids else bench.seconds
        load = {**common, "in_flight": 512, "bytes": 1024, "seconds": seconds}
        shown = "JetStream publishers" + (" with Nats-Msg-Id" if ids else "")
        names = {f"{shown}, {name}": url for name, url in loads.items()}
        bench.compare(
            None,
            {
                name: lambda url=url, ids=ids, load=load: bench.drive(
                    "jetstream-publish", url=url, ids=int(ids), **load
                )
                for name, url in names.items()
            },
        )
        theirs, ours = names
        times = bench.ratio(f"{shown}, natsAcks to JetStream", ours, theirs)
        bench.judge(f"{shown}, 512 in flight, 1024 B: times JetStream with sync always", times, least=BAR)
