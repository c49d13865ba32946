"""The settings on the page for JetStream publishers are valid; `test_howto_pages.py` runs its commands."""

import yaml
from bascule import config

from tests.docs.snippets import ROOT, snippets

PAGE = ROOT / "docs" / "how-to" / "jetstream-publishers.md"


def test_the_settings_of_the_page_are_settings() -> None:
    (settings,) = snippets(PAGE, "yaml")
    assert config.load(None, yaml.safe_load(settings.text), {}).nats.jetstream_ack_prefixes == ("_INBOX.",)
