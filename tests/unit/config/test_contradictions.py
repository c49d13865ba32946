"""Contradictory settings: they are accepted, with a warning which one wins."""

from typing import Any

import pytest
from bascule.config import Layer, combine, contradictions, file_document


def said(**nats: Any) -> list[str]:
    return list(contradictions(combine([Layer("test", {"nats": nats})]).settings))


@pytest.mark.parametrize(
    ("servers", "port"),
    [
        (["nats://10.0.0.5:4222"], 4222),
        (["nats://10.0.0.5:4222"], 0),
        (["nats://127.0.0.1:4223"], 0),
        (["nats://127.0.0.1:4222"], 4333),
        (["nats://127.0.0.1:4222", "nats://127.0.0.1:4223"], 4222),
    ],
)
def test_standalone_wins_over_external_servers(servers: list[str], port: int) -> None:
    (sentence,) = said(standalone=True, servers=servers, port=port)
    assert sentence.startswith(
        f"nats.standalone is set and nats.servers names {', '.join(servers)}: nats.standalone wins"
    )


def test_credentials_are_not_shown() -> None:
    (sentence,) = said(standalone=True, servers=["nats://me:geheim@h:4222"])
    assert "geheim" not in sentence


def test_a_file_for_a_disabled_standalone_server_causes_a_warning() -> None:
    (sentence,) = said(standalone=False, config="/n.conf")
    assert sentence.startswith(
        "nats.standalone is false and nats.config names /n.conf: nats.standalone wins, no nats-server is started"
    )


@pytest.mark.parametrize(
    "nats",
    [
        {},
        {"servers": ["nats://10.0.0.5:4222"]},
        {"standalone": True},
        {"standalone": True, "port": 4222},
        {"standalone": True, "port": 4333},
        {"standalone": True, "config": "/n.conf"},
        {"config": "/n.conf"},
    ],
)
def test_shown_settings_mean_the_same(nats: dict[str, Any]) -> None:
    given = combine([Layer("test", {"nats": nats})]).settings
    shown = combine([Layer("shown", file_document(given))]).settings
    assert list(contradictions(shown)) == []
    assert shown == given
    own = bool({"standalone", "config"} & nats.keys())
    said = {"servers", "host", "standalone"} & shown.nats.model_fields_set
    assert said == ({"servers", "host", "standalone"} & nats.keys() if own else {"servers", "host", "standalone"})


@pytest.mark.parametrize(
    "nats",
    [
        {},
        {"standalone": True},
        {"servers": ["nats://10.0.0.5:4222"]},
        {"standalone": True, "servers": ["nats://127.0.0.1:4333"], "port": 4333},
        {"standalone": True, "servers": ["localhost"], "port": 4222},
        {"standalone": True, "servers": ["nats://0.0.0.0:4222"], "port": 4222},
        {"standalone": True, "servers": ["nats://[::]:4222"], "port": 4222},
        {"standalone": True, "servers": ["nats://10.0.0.5:4333"], "port": 4333, "host": "10.0.0.5"},
        {"standalone": True, "servers": ["nats://name:4333"], "port": 4333, "host": "0.0.0.0"},
        {"standalone": True, "config": "/n.conf", "servers": ["nats://10.0.0.5:4222"]},
        {"config": "/n.conf"},
        {"standalone": False},
    ],
)
def test_consistent_settings_cause_no_warning(nats: dict[str, Any]) -> None:
    assert said(**nats) == []


@pytest.mark.parametrize("other", [{"user": "u"}, {"token_file": "/t"}, {"credentials_file": "/c"}, {"password": "p"}])
def test_credentials_in_urls_win_over_those_of_settings(other: dict[str, Any]) -> None:
    (sentence,) = said(servers=["nats://me:geheim@h:4222"], **other)
    assert f"nats.{next(iter(other))} is set: nats.servers wins" in sentence
    assert "geheim" not in sentence
