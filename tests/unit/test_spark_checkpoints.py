"""Checkpoints that are copies, or cannot be written, are refused before a query starts."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from bascule.errors import BrokerError
from bascule.spark.checkpoint_copies import MARK, claim


def started(folder: Path, query_id: str = "q") -> Path:
    """A checkpoint that a query has used."""
    claim(str(folder))
    (folder / "metadata").write_text(json.dumps({"id": query_id}))
    return folder


def test_a_copy_is_refused_while_the_original_is_in_its_place(tmp_path: Path) -> None:
    original = started(tmp_path / "c")
    shutil.copytree(original, tmp_path / "copy")
    with pytest.raises(
        BrokerError, match=r"/copy is a copy of .*/c, .*a new checkpoint; if .*/c is not used"
    ) as refused:
        claim(str(tmp_path / "copy"))
    assert refused.value.code == "sink_conflict"
    claim(str(original))
    claim(original.as_uri())
    shutil.rmtree(original)
    claim(str(tmp_path / "copy"))
    assert json.loads((tmp_path / "copy" / MARK).read_text()) == {"path": str((tmp_path / "copy").resolve())}


def test_what_is_not_a_copy_is_taken(tmp_path: Path) -> None:
    original = started(tmp_path / "c")
    original.rename(tmp_path / "moved")
    claim(str(tmp_path / "moved"))
    started(tmp_path / "c", "another query in the same place")
    claim(str(tmp_path / "moved"))
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    claim(str(tmp_path / "link"))
    (tmp_path / "moved" / MARK).write_text("{cut")
    claim(str(tmp_path / "moved"))
    claim("s3://bucket/checkpoint")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match=r"/file cannot be used: .*it must be a folder") as refused:
        claim(str(tmp_path / "file"))
    assert refused.value.code == "failed_precondition"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BrokerError, match="No space left on device; free space there") as refused:
        claim(str(tmp_path / "new"))
    assert refused.value.code == "disk_full"
