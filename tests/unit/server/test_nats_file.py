"""The listen address in a nats-server's own file, which the broker must not override."""

from pathlib import Path

import pytest
from bascule.server.nats_file import ListenKeys, listen_keys

NOTHING = ListenKeys(host=False, port=False)
BOTH = ListenKeys(host=True, port=True)
PORT = ListenKeys(host=False, port=True)
HOST = ListenKeys(host=True, port=False)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", NOTHING),
        ("max_payload: 1MB\n", NOTHING),
        ("listen: 127.0.0.1:4333", BOTH),
        ('listen = "0.0.0.0:4333"', BOTH),
        ("LISTEN 10.0.0.1:4333 # all", BOTH),
        ("listen: [::1]:4222", NOTHING),  # not valid for nats-server either: brackets are lists
        ('listen: "[::1]:4222"', BOTH),
        ("listen: 4333", PORT),
        ("listen: ':4333'", PORT),
        ("listen: $ADDRESS", BOTH),
        ("listen: localhost:-1", HOST),
        ("host: 0.0.0.0", HOST),
        ("net: localhost; port: 4333", BOTH),
        ("port: 4333", PORT),
        ("port: -1", NOTHING),
        ("# listen: 0.0.0.0:1\n// port: 1\n", NOTHING),
        ("cluster {\n listen: 0.0.0.0:6222\n}\n", NOTHING),
        ("cluster { routes = [ nats-route://u:p@h:6222 ]\n port: 6222 }\nport: 4333", PORT),
        ("accounts: { A: { users: [ {user: a, password: 'x}{'} ] } }\nhost: 127.0.0.1", HOST),
        ('{"host": "127.0.0.1", "port": 4333, "cluster": {"port": 6222}}', BOTH),
        ("{\n  cluster: {host: 0.0.0.0}\n}", NOTHING),
        ('server_name: "listen: 0.0.0.0:1"', NOTHING),
    ],
)
def test_only_the_outermost_keys_of_the_file_count(tmp_path: Path, text: str, keys: ListenKeys) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(text)
    assert listen_keys(file) == keys


def test_included_files_count_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "nats.conf").write_text("include ./sub/listen.conf\nport: 4333\n")
    (tmp_path / "sub" / "listen.conf").write_text("host: 127.0.0.1\ninclude '../nats.conf'\n")
    assert listen_keys(tmp_path / "nats.conf") == BOTH
    assert listen_keys(tmp_path / "nowhere.conf") == NOTHING
