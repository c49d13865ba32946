"""What docs/how-to/monitor.md tells Prometheus; `test_howto_pages.py` follows its commands."""

import yaml

from tests.docs.snippets import ROOT, snippets

PAGE = ROOT / "docs" / "how-to" / "monitor.md"
WRITTEN = "127.0.0.1:9393"


def test_prometheus_is_sent_where_a_broker_listens() -> None:
    (snippet,) = snippets(PAGE, "yaml")
    (job,) = yaml.safe_load(snippet.text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [WRITTEN]}]
