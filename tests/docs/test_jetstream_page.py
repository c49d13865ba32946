"""The page for JetStream publishers, from the first line to the last, against a real broker."""

import subprocess
import sys
from pathlib import Path

import bascule
import yaml
from bascule import config
from bascule.testing import broker

from tests.docs.snippets import ROOT, commands, shell, snippets

PAGE = ROOT / "docs" / "how-to" / "jetstream-publishers.md"


def test_a_reader_of_the_page_publishes_and_gets_acks(tmp_path: Path) -> None:
    (program,) = snippets(PAGE, "python")
    (settings,) = snippets(PAGE, "yaml")
    assert config.load(None, yaml.safe_load(settings.text), {}).nats.jetstream_ack_prefixes == ("_INBOX.",)
    with broker() as running:
        for snippet in snippets(PAGE, "sh"):
            for line in commands(snippet):
                shell(line, tmp_path, {"BASCULE_URL": running.url, "BASCULE_CONTEXTS": str(tmp_path / "contexts.yaml")})
        text = program.text.replace("nats://127.0.0.1:4222", running.nats_url)
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout) == (0, "orders 1\n"), done.stderr
        with bascule.connect(running.url) as client:
            (record,) = client.subscribe("orders", stop="latest").records()
        assert (record.value, record.subject) == (b"first", "orders.eu")
