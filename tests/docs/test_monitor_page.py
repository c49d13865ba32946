"""docs/how-to/monitor.md, as a reader follows it: the commands, and what they print."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from bascule.cli import main
from bascule.testing import broker

from tests.docs.snippets import ROOT, commands, shell, snippets

PAGE = ROOT / "docs" / "how-to" / "monitor.md"
WRITTEN = "127.0.0.1:9393"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl, which is not installed")
def test_the_page_shows_what_a_broker_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for snippet in snippets(PAGE, "sh") for line in commands(snippet)]
    (shown,) = snippets(PAGE, "text")
    with broker(settings={"http.listen": "127.0.0.1:0"}) as running:
        probe, status, metrics = lines
        answer = shell(probe.replace(WRITTEN, running.http_address), tmp_path, {})
        names = re.findall(r"^(\[.\] .*?): ", answer, re.MULTILINE)
        assert names == re.findall(r"^(\[.\] .*?): ", shown.text, re.MULTILINE)
        assert answer.splitlines()[-1] == shown.text.splitlines()[-1] == "readyz ok"
        assert main([*status.split()[1:], "--url", running.url]) == 0
        table = capsys.readouterr().out
        assert all(name.removeprefix("[+] ") in table for name in names)
        assert shell(metrics.replace(WRITTEN, running.http_address), tmp_path, {}).endswith("# EOF\n")


def test_prometheus_is_sent_where_a_broker_listens() -> None:
    (snippet,) = snippets(PAGE, "yaml")
    (job,) = yaml.safe_load(snippet.text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [WRITTEN]}]
