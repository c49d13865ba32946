"""The how-to "Move from Iggy", followed to its end; its keys are settings of ours."""

import re
from pathlib import Path

import bascule
import yaml
from bascule import config

from tests.docs.reader import HOW_TO, Reader
from tests.docs.snippets import snippets

PAGE = HOW_TO / "iggy.md"
SETTINGS = {f"iggy.{name}": "127.0.0.1:0" for name in ("listen", "http_listen", "quic_listen")}
ADDRESSES = {"127.0.0.1:8090": "{iggy}", "127.0.0.1:3000": "{iggy_http}"}


def test_the_page_is_followed_to_its_end(tmp_path: Path) -> None:
    with Reader(tmp_path, "iggy.md", ADDRESSES, SETTINGS) as reader:
        steps = reader.follow()
        printed = [step.printed for step in steps if step.snippet.language == "python"]
        assert printed == ["['orders/paid']\n", "3 copied\n", "[b'3']\n", "[b'4']\n"]
        listed = next(step.printed for step in steps if "stream list" in step.snippet.text)
        assert "orders/paid-copy" in listed
        with bascule.connect(f"liftbridge://{reader.ready['address']}") as client:
            (billing,) = (user for user in client.iggy_users() if user.name == "billing")
            assert (billing.is_active, billing.tokens) == (False, ())
            assert {grant.stream for grant in billing.grants} == {"orders"}


def test_the_configuration_is_valid_and_its_keys_exist() -> None:
    (document,) = (yaml.safe_load(snippet.text) for snippet in snippets(PAGE, "yaml"))
    settings = config.load(None, document, {})
    assert settings.iggy.listen == "127.0.0.1:8090"
    dumped = settings.model_dump()
    table = PAGE.read_text().split("## Configuration keys")[1].split("## What differs")[0]
    ours = [row.split(" | ", 1)[1] for row in table.splitlines() if row.startswith("| `")]
    named = {key for cell in ours for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)?)`", cell)} - {"off", "memory", "iggy"}
    assert len(named) >= 12
    for key in named:
        section, _, name = key.partition(".")
        assert section in dumped, key
        assert not name or name in dumped[section], key
