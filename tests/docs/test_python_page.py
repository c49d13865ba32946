"""Every example of "Use it from Python" runs, one after the other, on one broker."""

import re
import subprocess
import sys

from bascule.testing import broker

from tests.docs.snippets import ROOT, snippets

PAGE = ROOT / "docs" / "how-to" / "python.md"
SECONDS = 240


def test_every_example_runs() -> None:
    examples = snippets(PAGE, "python")
    with broker(settings={"cursors.partitions": 1}) as running, running.connect() as client:
        client.create_stream("orders", "orders.>")  # as the README has it, where most readers come from
        printed: list[str] = []
        for example in examples:
            text, replaced = re.subn(r"liftbridge://127\.0\.0\.1:9292", running.url, example.text)
            assert replaced == 1, f"line {example.line} connects once, to the usual address"
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", text],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"the example in line {example.line} failed: {done.stderr}"
            printed.append(done.stdout)
    first, produced, read, resumed, shared, concurrent, failed = printed
    assert first == "0\n"
    assert produced == "10003 10001\n"
    assert read == "10004 10003 b'the last one'\n"
    assert resumed.splitlines()[-1] == "10003"
    assert "now mine" in shared
    assert "about to go" in shared
    assert sum(map(int, concurrent.split())) == 10_014
    assert failed.startswith('stream_not_found stream "no-such-stream" does not exist')
