"""The page on security: its settings work, its policy allows what the page says, its table is complete."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from bascule import config
from bascule.cli import main
from bascule.client.tooling import addresses, protection
from bascule.security import ACTIONS, AccessTable, read_policy
from bascule.testing import TestBroker, broker

from tests.certificates import Authority
from tests.docs.snippets import ROOT, commands, shell, snippets
from tests.waiting import until

PAGE = ROOT / "docs" / "how-to" / "secure.md"
YAML = [snippet.text for snippet in snippets(PAGE, "yaml")]
USED = "the policy is in use"
POLICY = next(text for text in YAML if text.startswith("# policy.yaml"))


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory) -> AccessTable:
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY)
    return read_policy(file)


def test_the_settings_are_settings() -> None:
    loaded: list[dict[str, Any]] = [yaml.safe_load(text) for text in YAML]
    documents = [document for document in loaded if "rules" not in document]
    assert len(documents) == 5
    known = config.known_keys()
    for document in documents:
        keys = [f"{section}.{name}" for section, names in document.items() for name in names]
        assert set(keys) <= set(known)
    merged: dict[str, Any] = {}
    for document in documents:
        for section, values in document.items():
            merged.setdefault(section, {}).update(values)
    assert config.load(None, merged, {}).tls.client_auth == "required"


@pytest.mark.parametrize(
    ("client", "action", "resource", "allowed"),
    [
        ("billing", "Subscribe", "payments-1", True),
        ("billing", "Publish", "orders", False),
        ("audit", "Subscribe", "payments-1", True),
        ("audit", "Subscribe", "payments-private", False),
        ("shop", "CreateStream", "orders", True),
        ("shop", "Subscribe", "orders", False),
        ("anybody", "FetchMetadata", "*", True),
        ("operator", "DeleteStream", "payments-private", True),
    ],
)
def test_the_policy_says_what_the_page_says(
    table: AccessTable, client: str, action: str, resource: str, allowed: bool
) -> None:
    assert table.allows(client, action, resource) == allowed


def test_every_action_is_in_the_table_once() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(ACTIONS)


def test_the_urls_are_urls() -> None:
    urls = re.findall(r"bascules://[^\s'\"]+", PAGE.read_text())
    assert len(urls) == 4
    for url in urls:
        assert addresses(url) == ["broker.example:9292"]
        assert protection(url) is not None


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page names, in a directory of the test."""
    authority = Authority(tmp_path)
    for name in ("broker", "billing"):
        authority.issue(name)
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _settings(files: Path, *numbers: int) -> dict[str, Any]:
    """The settings of some of the page's blocks."""
    documents = [yaml.safe_load(_moved(YAML[number], files)) for number in numbers]
    return {
        f"{section}.{name}": value for it in documents for section, names in it.items() for name, value in names.items()
    }


def _reach(files: Path, running: TestBroker, which: int) -> list[str]:
    """Run the command and the program of a section, and return the options that name the broker."""
    command = [line for snippet in snippets(PAGE, "sh") for line in commands(snippet)][which]
    words = shlex.split(_moved(command, files).replace("broker.example:9292", running.address))
    assert main(words[1:]) == 0
    connected: dict[str, Any] = {}
    program = snippets(PAGE, "python")[which].text
    exec(_moved(program, files).replace("broker.example:9292", running.address), connected)
    assert connected["client"].list_streams() == []
    connected["client"].close()
    return words[3:]


def test_the_page_is_followed_from_tls_to_a_new_policy(files: Path) -> None:
    with broker(settings=_settings(files, 0)) as running:
        _reach(files, running, 0)
    with broker(settings=_settings(files, 1, 2)) as running:
        options = _reach(files, running, 1)
        assert main(["stream", "create", "s", *options]) == 4, "denied"
        (files / "policy.yaml").write_text(POLICY.replace("clients: operator", "clients: billing"))
        (hang_up,) = [line for snippet in snippets(PAGE, "console") for line in commands(snippet)]
        before = running.log.count(USED)
        shell(hang_up.replace("/var/lib/bascule", str(running.directory / "data")), files, {})
        until(lambda: running.log.count(USED) > before)
        assert main(["stream", "create", "s", *options]) == 0


def _moved(text: str, directory: Path) -> str:
    """The text with the files of this test in place of those of the page."""
    return (
        text.replace("/etc/bascule/tls/clients-ca", f"{directory}/ca")
        .replace("/etc/bascule/tls", str(directory))
        .replace("/etc/bascule", str(directory))
    )
