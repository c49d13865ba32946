"""The cost of encryption at rest: the same loads to a plain and to an encrypted stream of one broker."""

import base64
import secrets

import bascule
from bascule import StreamOptions
from processes import Broker
from session import Bench

LEAST = 0.7
"""Minimum share of the rate without encryption."""
UNITS = {"in_flight": "in flight", "bytes": "B"}


def encryption(bench: Bench) -> None:
    """Publish and subscribe, alternating."""
    folder = bench.folder / "encryption"
    folder.mkdir()
    key = folder / "master"
    key.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    key.chmod(0o400)
    broker = Broker.start(folder, {"encryption": {"keys": {"bench": str(key)}}})
    try:
        address = broker.ready["address"]
        with bascule.connect(f"bascule://{address}") as client:
            for name in ("plain", "encrypted"):
                options = StreamOptions(encryption=name == "encrypted")
                client.create_stream(name, f"bench.{name}", options=options)
        publishing = {"address": address, "seconds": bench.seconds}
        for command, load in (
            ("publish", {"in_flight": 64, "bytes": 1024, **publishing}),
            ("publish-async", {"in_flight": 512, "bytes": 1024, **publishing}),
            ("publish-async", {"in_flight": 4096, "bytes": 256, **publishing}),
            ("subscribe", {"address": address, "count": bench.count // 5}),
        ):
            what = ", ".join([command, *(f"{load[key]} {unit}" for key, unit in UNITS.items() if key in load)])
            bench.compare(
                broker,
                {
                    f"{what}, {name}": lambda name=name, command=command, load=load: bench.drive(
                        command, stream=name, **load
                    )
                    for name in ("plain", "encrypted")
                },
            )
            share = bench.ratio(f"{what}, encrypted to plain", f"{what}, encrypted", f"{what}, plain")
            bench.judge(f"{what}: encrypted, share of plain", share, least=LEAST)
    finally:
        broker.stop()
