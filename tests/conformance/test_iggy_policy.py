"""A policy beside Iggy's users: clients without a certificate log in, and rules that deny override rights."""

import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bascule.protocols.iggy.fields import identifier, short_text
from bascule.protocols.iggy.permissions import GlobalFlags, Permissions

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, RefusedError
from tests.conformance.iggy_transports import LIMIT_S
from tests.conformance.mutual import Mutual, mutual_broker, rule
from tests.conformance.test_iggy_rights import OWN, UNAUTHORIZED, create_user

PASSWORD = "a password of the test"
EVERYTHING = Permissions(GlobalFlags(*[True] * 10))


def deny(client: str, actions: str | list[str], resources: str) -> dict[str, Any]:
    """One rule that denies."""
    return {"clients": client, "deny": actions, "resources": resources}


@contextmanager
def secured(mutual: Mutual, password: str, name: str = "iggy") -> Generator[Raw]:
    """A connection over TLS without a certificate of its own, logged in."""
    assert mutual.running is not None
    host, _, port = mutual.running.iggy_address.rpartition(":")
    context = ssl.create_default_context(cafile=str(mutual.authority.ca))
    with (
        socket.create_connection((host, int(port)), timeout=LIMIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as stream,
    ):
        raw = Raw(stream)
        raw.login(password, name)
        yield raw


def test_a_policy_takes_away_what_rights_give(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings: dict[str, object] = {
        "iggy.listen": "127.0.0.1:0",
        "iggy.root_password_file": str(tmp_path / "password"),
        "cursors.partitions": 1,
    }
    with mutual_broker(tmp_path, **settings) as mutual, secured(mutual, PASSWORD) as root:
        place = root.create("s")
        root.create("s2")
        create_user(root, "ada", EVERYTHING)
        create_user(root, "bob")
        with secured(mutual, OWN, "ada") as ada, secured(mutual, OWN, "bob") as bob:
            ada.send(place, iggy.BALANCED, [b"first"])
            mutual.allow(deny("iggy:ada", ["Publish", "DeleteStream"], "s/t"), rule("*", "*", "s/t"))
            assert sends(ada) == UNAUTHORIZED
            assert ada.ask(iggy.DELETE_TOPIC, iggy.path("s", "t"))[0] == UNAUTHORIZED
            assert ada.ask(iggy.DELETE_STREAM, identifier("s"))[0] == UNAUTHORIZED, "a topic of it is kept"
            assert ada.poll(place).payloads == [b"first"], "only what is denied"
            ada.send(("s2", "t"), iggy.BALANCED, [b"x"])
            with pytest.raises(RefusedError, match=str(UNAUTHORIZED)):
                bob.poll(place)  # a rule that allows gives no rights to users
            mutual.allow(deny("*", ["Subscribe", "CreateStream"], "s/*"), deny("iggy:ada", "ManageUsers", "*"))
            assert sends(ada) == 0
            for raw in (ada, root):
                with pytest.raises(RefusedError, match=str(UNAUTHORIZED)):
                    raw.poll(place)
                assert raw.ask(iggy.CREATE_TOPIC, new_topic("s"))[0] == UNAUTHORIZED
            assert [raw.ask(32)[0] for raw in (ada, root)] == [UNAUTHORIZED, 0]
            assert ada.ask(31, identifier("ada"))[0] == 0, "oneself always"
            mutual.allow()
            assert ada.poll(place).payloads == [b"first", b"x"]
            assert ada.ask(iggy.CREATE_TOPIC, new_topic("s"))[0] == 0
        assert mutual.running is not None
        assert 'denied: Publish on "s/t"' in mutual.running.log


def sends(raw: Raw) -> int:
    """The status of a send of one message to topic `t` of stream `s`."""
    message = bytes(20) + struct.pack("<I", 1) + b"x"
    return raw.ask(iggy.SEND, iggy.path("s", "t") + iggy.BALANCED + message)[0]


def new_topic(stream: str) -> bytes:
    return identifier(stream) + struct.pack("<IIBQQB", 0, 1, 1, 0, 0, 0) + short_text("new")
