"""Three brokers meet over TLS, and whoever shows another certificate is left out."""

from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.integration.cluster.brokers import NAMES, Brokers


def tls(authority: Authority, name: str) -> dict[str, Any]:
    """Settings of a broker with a certificate of this name."""
    pair = authority.issue(name)
    return {
        "cluster__tls__certificate_file": str(pair.cert),
        "cluster__tls__key_file": str(pair.key),
        "cluster__tls__ca_file": str(authority.ca),
    }


async def test_brokers_with_certificates_found_a_cluster_and_others_are_refused(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    brokers = Brokers(tmp_path)
    try:
        for name in NAMES:
            brokers.running[name] = await brokers.launch(name, **tls(authority, name))
        await brokers.ready()
        await brokers.created("b2", "orders")
        await brokers.seen("orders")

        for settings in (tls(stranger, "b3"), tls(authority, "b1"), {}):
            await brokers.kill("b3")
            brokers.running["b3"] = await brokers.launch("b3", **settings)
            for other in ("b1", "b2"):
                await brokers.said("b3", f'broker "{other}" at {brokers.peers[other]} is not connected')
            await brokers.reached("b1", b1="live", b2="live", b3="fenced")
            assert not brokers.running["b3"].ready_file.exists()

        await brokers.kill("b3")
        brokers.running["b3"] = await brokers.launch("b3", **tls(authority, "b3"))
        await brokers.ready()
        await brokers.created("b3", "payments")
        await brokers.seen("payments")
    finally:
        await brokers.stop()
