"""The how-to pages that need more than a new broker (damage, keys), from the first line to the last."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bascule
import pytest
import yaml
from bascule import config
from bascule.cli import main
from bascule.testing import broker

from tests.docs.reader import dotted
from tests.docs.snippets import ROOT, commands, shell, snippets

HOW_TO = ROOT / "docs" / "how-to"
SHELL = set("|>")


def lines(page: str) -> Iterator[str]:
    for snippet in snippets(HOW_TO / page, "sh"):
        yield from commands(snippet)


def run(line: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A command line: in this process, unless it needs a shell."""
    if SHELL & set(line):
        return shell(line, directory, {})
    program, *words = shlex.split(line)
    assert program == "bascule"
    assert main(words) == 0, (line, capsys.readouterr().err)
    return capsys.readouterr().out


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("BASCULE_URL", raising=False)
    return tmp_path


def test_check_and_repair_the_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify, plan, repair, cut = lines("repair.md")
    (program,) = snippets(HOW_TO / "repair.md", "python")
    with broker(directory=here) as running:
        with bascule.connect(running.url) as client:
            client.create_stream("orders", options=bascule.StreamOptions(segment_max_bytes=4096))
            for count in (118, 122, 200, 200):
                client.publish_many("orders", [b"a value of forty bytes, more or less, %d" % count] * count)
        (log,) = (here / "data" / "partitions").iterdir()
        segment = sorted(log.glob("*.seg"))[1]
        content = bytearray(segment.read_bytes())
        content[64 + 200] ^= 1
        segment.write_bytes(content)
        # 1. a program continues after the damage
        with bascule.connect(running.url) as client:
            known: dict[str, Any] = {"bascule": bascule, "client": client, "read": list, "position": "earliest"}
            exec(program.text, known)
            assert known["position"] == 240
            assert sum(map(len, client.subscribe("orders", start=240, stop="latest"))) == 400
    (here / "data").rename(here / "bascule-data")
    # 2. verify finds it, and repair restores it from a backup
    assert main(shlex.split(verify)[1:]) == 1
    assert "118" in capsys.readouterr().out
    shutil.copytree(here / "bascule-data", here / "backup" / "bascule-data")
    content[64 + 200] ^= 1
    (here / "backup" / "bascule-data" / "partitions" / log.name / segment.name).write_bytes(content)
    assert main(shlex.split(plan)[1:]) == 0, "nothing would be left"
    assert main(shlex.split(verify)[1:]) == 1, "a dry run changes nothing"
    capsys.readouterr()
    run(repair, here, capsys)
    run(verify, here, capsys)
    # 3. the log may end before it instead
    run(cut.replace("65536", log.name), here, capsys)
    (here / "bascule-data").rename(here / "data")
    with broker(directory=here) as running, bascule.connect(running.url) as client:
        assert client.publish("orders", b"again").offset == 118


def test_encrypt_streams_at_rest(here: Path) -> None:
    page = HOW_TO / "encrypt.md"
    for line in lines("encrypt.md"):
        shell(line.replace("/etc/bascule/keys", str(here)), here, {})
    shutil.copy(here / "2026-11", here / "2027-02")
    first, second = (
        yaml.safe_load(snippet.text.replace("/etc/bascule/keys", str(here))) for snippet in snippets(page, "yaml")
    )
    settings = config.load(None, first, {})
    assert (list(settings.encryption.keys), settings.streams.encryption) == (["2026-11"], True)
    with broker(settings=dotted(second)) as running, bascule.connect(running.url) as client:
        client.create_stream("s", options=bascule.StreamOptions(encryption=True))
        assert client.publish("s", b"x").offset == 0
