"""`bascule iggy users` and `tokens` against a real broker, and what they give to a client of Iggy's protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.cli import main
from bascule.protocols.iggy.fields import short_text
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import RefusedError, connected
from tests.integration.cli.conftest import Run
from tests.names import fresh

PASSWORD = "a password of the test"
UNAUTHENTICATED, UNAUTHORIZED, INACTIVE = 40, 41, 47


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker that serves Iggy's clients, in place of the one that other tests share."""
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    with broker(settings=settings) as started:
        yield started


@pytest.fixture
def user(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)[-40:]


def test_a_created_user_logs_in_with_the_shown_password_and_may_do_what_was_granted(
    cli: Run, running: TestBroker, user: str
) -> None:
    with connected(running.iggy_address, PASSWORD) as root:
        root.create(user)
    made = cli("iggy", "users", "create", user, "--grant", f"{user}/t:poll_messages", "--grant", "read_users")
    assert made["grants"] == [f"{user}/t:poll_messages", "read_users"]
    (row,) = (item for item in cli("iggy", "users", "list") if item["user"] == user)
    grants = ["read_users", f"{user}/t:poll_messages"]
    assert row == {"user": user, "number": made["number"], "state": "active", "grants": grants, "tokens": 0}
    with connected(running.iggy_address) as raw:
        assert raw.login(made["password"], user) == made["number"]
        assert raw.poll((user, "t")).messages == []
        with pytest.raises(RefusedError, match=str(UNAUTHORIZED)):
            raw.send((user, "t"), iggy.BALANCED, [b"x"])
    assert cli("iggy", "users", "delete", user, "--yes") == {"user": user, "tokens": 0, "dry_run": False}
    assert user not in {item["user"] for item in cli("iggy", "users", "list")}
    assert "does not exist" in cli("iggy", "users", "delete", user, "--yes", code=3)


def test_a_password_comes_from_a_file_or_is_generated_and_shown_once(
    cli: Run, running: TestBroker, user: str, tmp_path: Path
) -> None:
    file = tmp_path / "password.txt"
    file.write_text("from a file\n")
    made = cli("iggy", "users", "create", user, "--password-file", str(file))
    assert made["password"] is None
    with connected(running.iggy_address) as raw:
        raw.login("from a file", user)
        changed = cli("iggy", "users", "password", user)
        assert len(changed["password"]) == 32
        raw.login(changed["password"], user)
    assert cli("iggy", "users", "password", user, "--password-file", str(file))["password"] is None
    assert "cannot be read" in cli("iggy", "users", "password", user, "--password-file", str(tmp_path / "no"), code=2)


def test_a_token_logs_in_until_it_is_deleted(cli: Run, running: TestBroker, user: str) -> None:
    cli("iggy", "users", "create", user)
    made = cli("iggy", "tokens", "create", user, "nightly", "--expires-in", "30d")
    cli("iggy", "tokens", "create", user, "forever")
    rows = cli("iggy", "tokens", "list", user)
    assert [(row["token"], row["expires"] is None) for row in rows] == [("forever", True), ("nightly", False)]
    with connected(running.iggy_address) as raw:
        assert raw.ask(44, short_text(made["text"]))[0] == 0
        deleted = cli("iggy", "tokens", "delete", user, "nightly", "--yes")
        assert deleted == {"user": user, "token": "nightly", "dry_run": False}
        assert raw.ask(44, short_text(made["text"]))[0] == 20
    assert "has no token nightly" in cli("iggy", "tokens", "delete", user, "nightly", "--yes", code=3)


def test_status_and_permissions_reach_open_sessions(cli: Run, running: TestBroker, user: str) -> None:
    with connected(running.iggy_address, PASSWORD) as root:
        root.create(user)
    password = cli("iggy", "users", "create", user)["password"]
    with connected(running.iggy_address) as raw:
        raw.login(password, user)
        with pytest.raises(RefusedError, match=str(UNAUTHORIZED)):
            raw.poll((user, "t"))
        given = cli("iggy", "users", "permissions", user, "--grant", f"{user}:poll_messages")
        assert given == {"user": user, "grants": [f"{user}:poll_messages"], "dry_run": False}
        assert raw.poll((user, "t")).messages == []
        assert cli("iggy", "users", "permissions", user, "--none", "--dry-run")["grants"] == []
        assert raw.poll((user, "t")).messages == []
        assert cli("iggy", "users", "permissions", user, "--none")["grants"] == []
        with pytest.raises(RefusedError, match=str(UNAUTHORIZED)):
            raw.poll((user, "t"))
        off = cli("iggy", "users", "status", user, "inactive")
        assert off == {"user": user, "state": "inactive", "dry_run": False}
        with pytest.raises(RefusedError, match=str(UNAUTHENTICATED)):
            raw.poll((user, "t"))
        with pytest.raises(RefusedError, match=str(INACTIVE)):
            raw.login(password, user)
        cli("iggy", "users", "status", user, "active")
        raw.login(password, user)


def test_dry_runs_change_nothing_and_say_what_would_happen(cli: Run, user: str) -> None:
    made = cli("iggy", "users", "create", user, "--dry-run")
    assert made == {"user": user, "number": None, "grants": [], "password": None, "dry_run": True}
    cli("iggy", "users", "create", user)
    assert cli("iggy", "users", "password", user, "--dry-run")["password"] is None
    assert cli("iggy", "tokens", "create", user, "dev", "--dry-run")["text"] is None
    cli("iggy", "tokens", "create", user, "dev")
    assert cli("iggy", "tokens", "delete", user, "dev", "--dry-run")["dry_run"]
    assert cli("iggy", "users", "delete", user, "--dry-run") == {"user": user, "tokens": 1, "dry_run": True}
    assert [row["token"] for row in cli("iggy", "tokens", "list", user)] == ["dev"]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["users", "create", "ab"], "not between 3 and 50 bytes", 2),
        (["users", "create", "iggy"], "user 'iggy' exists", 6),
        (["users", "create", "ada", "--grant", "fly"], "'fly' is not a right everywhere", 2),
        (["users", "create", "ada", "--grant", "absent:read_topics"], "stream 'absent' does not exist", 3),
        (["users", "create", "ada", "--grant", ":read_topics"], "--grant ':read_topics'", 2),
        (["users", "create", "ada", "--grant", "orders/:read_topic"], "--grant 'orders/:read_topic'", 2),
        (["users", "delete", "iggy", "--yes"], "is the first one", 6),
        (["users", "password", "absent"], "user 'absent' does not exist", 3),
        (["users", "status", "iggy", "inactive"], "is the first one", 6),
        (["users", "status", "absent", "active"], "user 'absent' does not exist", 3),
        (["users", "status", "iggy", "asleep"], "'asleep' is not one of", 2),
        (["users", "permissions", "iggy", "--none"], "is the first one", 6),
        (["users", "permissions", "iggy"], "name the rights with --grant", 2),
        (["users", "permissions", "iggy", "--none", "--grant", "read_users"], "name the rights with --grant", 2),
        (["tokens", "list", "absent"], "user 'absent' does not exist", 3),
        (["tokens", "create", "iggy", "ab"], "not between 3 and 30 bytes", 2),
        (["tokens", "create", "iggy", "dev", "--expires-in", "soon"], "--expires-in 'soon'", 2),
        (["tokens", "create", "iggy", "dev", "--expires-in", "0s"], "a time above 0", 2),
    ],
)
def test_what_cannot_be_done_says_why(cli: Run, arguments: list[str], said: str, code: int) -> None:
    assert said in cli("iggy", *arguments, code=code)


def test_a_deletion_asks_first(here: TestBroker, user: str, capsys: pytest.CaptureFixture[str]) -> None:
    del here
    assert main(["iggy", "users", "create", user]) == 0
    assert main(["iggy", "users", "delete", user]) == 2
    assert "add --yes" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["table", "json", "ndjson", "yaml", "csv"])
def test_users_are_shown_in_every_format(here: TestBroker, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    del here
    assert main(["iggy", "users", "list", "--output", output]) == 0
    assert "iggy" in capsys.readouterr().out
