"""The page on security: its settings load, its policy says what the page says, its table is complete."""

import re
from typing import Any

import pytest
import yaml
from bascule import config
from bascule.client.address import addresses, protection
from bascule.security import ACTIONS, AccessTable, read_policy

from tests.docs.snippets import ROOT, snippets

PAGE = ROOT / "docs" / "how-to" / "secure.md"
YAML = [snippet.text for snippet in snippets(PAGE, "yaml")]
POLICY = next(text for text in YAML if text.startswith("# policy.yaml"))


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory) -> AccessTable:
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY)
    return read_policy(file)


def test_the_settings_are_settings() -> None:
    documents: list[dict[str, Any]] = [yaml.safe_load(text) for text in YAML if text != POLICY]
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
