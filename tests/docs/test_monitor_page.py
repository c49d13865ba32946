"""The Prometheus configuration in docs/how-to/monitor.md; `test_howto_pages.py` runs its commands."""

import yaml

from tests.docs.snippets import ROOT, snippets

PAGE = ROOT / "docs" / "how-to" / "monitor.md"
WRITTEN = "127.0.0.1:9393"


def test_prometheus_scrapes_the_address_of_a_broker() -> None:
    (snippet,) = snippets(PAGE, "yaml")
    (job,) = yaml.safe_load(snippet.text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [WRITTEN]}]
