"""docs/reference/iggy.md has every command of v1, v1b and v2 with what the broker does with it, and its tests exist."""

import inspect
import re
from pathlib import Path

import pytest
from bascule.client._iggy.client import IggyClient
from bascule.protocols.iggy import IggyAdmin
from bascule.protocols.iggy.commands import DECODERS, SINCE_V2
from bascule.protocols.iggy.http.routes import ROUTES

from tests.unit.control.rig import running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/iggy.md").read_text()
WIRE = ROOT / "crates/wire/src/iggy/v1"
NATIVE = {
    *("GET_ME", "GET_CLIENT", "GET_CLIENTS"),
    *("PING", "LOGOUT_USER", "POLL_MESSAGES", "SEND_MESSAGES", "FLUSH_UNSAVED_BUFFER", "GET_CONSUMER_GROUPS"),
    *(f"{verb}_CONSUMER_OFFSET" for verb in ("GET", "STORE", "DELETE")),
    *(f"{verb}_CONSUMER_GROUP" for verb in ("GET", "JOIN", "LEAVE", "SYNC")),
}
"""Commands that the data plane answers (`crates/broker/src/iggy/connection.rs`)."""


def rows() -> dict[str, tuple[int, str]]:
    """By command: its code, and whether it is served."""
    found = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    return {name: (int(code), status) for code, name, status in found}


def test_every_command_of_the_protocol_has_its_row() -> None:
    known = re.findall(r'\((\d+), "([A-Z_]+)"\)', (WIRE / "request.rs").read_text())
    assert {name: code for name, (code, _) in rows().items()} == {name: int(code) for code, name in known}
    assert set(DECODERS) <= rows().keys()


async def test_the_commands_marked_as_served_are_those_that_are_answered() -> None:
    async with running() as rig:
        admin: IggyAdmin = rig.iggy
        decided, from_zero, of_v2 = (
            {method.removeprefix(prefix) for method in admin.handlers() if method.startswith(prefix)}
            for prefix in ("iggy/", "iggy0/", "iggy2/")
        )
    assert from_zero == decided
    assert of_v2 == decided | SINCE_V2
    served = {name for name, (_, status) in rows().items() if status.startswith("served")}
    assert served == of_v2 | NATIVE
    assert {status for _, status in rows().values()} <= {"served", "status 5"}


def test_every_path_of_http_has_its_row() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| (\d+|–) \|", PAGE, re.MULTILINE)
    offered = {(route.method, "/" + "/".join(route.path)): str(route.status) for route in ROUTES}
    assert {(method, path) for method, path, _ in rows} == offered.keys()
    assert {(method, path): status for method, path, status in rows if status != "–"}.items() <= offered.items()


def test_the_sdk_methods_of_the_page_are_those_that_the_protocol_has() -> None:
    table = PAGE.split("## The SDK over this protocol")[1].split("Every other method")[0]
    named = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    offered = {
        name
        for name, method in vars(IggyClient).items()
        if inspect.isfunction(method) and not name.startswith("_") and method.__name__ == name
    }
    assert named == offered - {"open", "close"}


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`((?:tests|crates)/[^`]+::[^`]+)`", PAGE))))
def test_each_named_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"\b(?:def|fn) {name}\(", (ROOT / file).read_text()), test
