"""Settings of a broker that is one of several: accepted and rejected forms."""

import json
from pathlib import Path
from typing import Any

import pytest
from bascule import config
from bascule.errors import UsageError
from bascule.server import engine_config

PEERS = {"b1": "127.0.0.1:7001", "b2": "127.0.0.1:7002", "b3": "127.0.0.1:7003"}


def load(**flags: Any) -> config.Settings:
    given = {"broker.broker_id": "b2", "cluster.peers": PEERS}
    return config.load(None, {**given, **{name.replace("__", "."): value for name, value in flags.items()}}, {})


def test_a_broker_alone_has_no_cluster() -> None:
    settings = config.load(None, {}, {})
    assert settings.cluster.peers == {}
    assert engine_config.engine_settings(settings, "b")["cluster"] is None


def test_a_broker_listens_where_the_others_dial_it_unless_another_address_is_set(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("broker: {broker_id: b3}\ncluster:\n  peers: " + json.dumps(PEERS))
    assert engine_config.engine_settings(config.load(file, {}, {}), "b3")["cluster"] == {
        "listen": "127.0.0.1:7003",
        "peers": PEERS,
        "tls": None,
    }
    document = engine_config.engine_settings(load(cluster__peer_listen="127.0.0.1:8"), "b2")
    assert document["cluster"]["listen"] == "127.0.0.1:8"


def test_off_loopback_brokers_have_certificates() -> None:
    far = {**PEERS, "b1": "10.0.0.1:7001"}
    with pytest.raises(UsageError, match=r"10\.0\.0\.1:7001 is not a loopback address: set cluster\.tls"):
        load(cluster__peers=far)
    files = {f"cluster.tls.{name}_file": f"/{name}" for name in ("certificate", "key", "ca")}
    settings = load(cluster__peers=far, **files)
    assert engine_config.engine_settings(settings, "b2")["cluster"]["tls"] == {
        "certificate": "/certificate",
        "key": "/key",
        "authorities": "/ca",
    }
    with pytest.raises(UsageError, match="go together: set all or none"):
        load(cluster__tls__key_file="/key")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"broker__broker_id": "b4"}, 'broker.broker_id is "b4", and cluster.peers names b1, b2, b3: set one of them'),
        ({"cluster__peers": {"b2": "127.0.0.1:1"}}, "cluster.peers names 1 brokers: name 3 or 5"),
        ({"cluster__peers": {**PEERS, "b4": "127.0.0.1:1"}}, "cluster.peers names 4 brokers: name 3 or 5"),
        ({"cluster__peers": {**PEERS, "b1": "127.0.0.1:7003"}}, "gives two brokers one address"),
        ({"cluster__peers": {**PEERS, "b1": "127.0.0.1:0"}}, "not an address that other brokers can dial"),
        ({"cluster__peers": {**PEERS, "b1": "nowhere"}}, "not an address that other brokers can dial"),
        ({"cluster__peer_listen": "nowhere"}, "not an address that other brokers can dial"),
        ({"cluster__peers": {}, "cluster__peer_listen": "127.0.0.1:1"}, "have no effect without cluster.peers"),
        ({"activity__enabled": True}, "activity.enabled is not available with several brokers yet: set it to false"),
        ({"iggy__listen": "127.0.0.1:0"}, "iggy.listen with several brokers needs iggy.root_password_file"),
        ({"streams__encryption": True}, "streams.encryption is not available with several brokers yet"),
        ({"streams__min_isr": 2}, "streams.min_isr is not available with several brokers yet: set it to 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(**flags)
    assert text in str(refused.value)


def test_an_own_nats_server_is_warned_of() -> None:
    settings = load(nats__standalone=True)
    assert settings.cursors.partitions == 1
    assert any("nats.standalone and cluster.peers are set" in line for line in config.contradictions(settings))
