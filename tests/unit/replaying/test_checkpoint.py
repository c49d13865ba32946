"""The checkpoint of a replay: files are made once, and a difference is named."""

from dataclasses import replace
from pathlib import Path

import pytest
from bascule.errors import CorruptionError, StateError
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Source
from bascule.lake.storage import open_storage
from bascule.spark.replaying.checkpoint import Checkpoint, Reached
from bascule.spark.replaying.lanes import Position, lanes_of
from bascule.spark.replaying.options import Bounds

LANES = lanes_of([(Source("s", 3, 0), 0, 5), (Source("s", 4, 1), 2, 9)], Bounds())
ASKED = {"id": "r", "to": "t", "first": None}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(open_storage(str(tmp_path / "replay"), ArchiveOptions("x")))


def test_the_plan_is_read_again_as_it_was_made(checkpoint: Checkpoint) -> None:
    assert checkpoint.plan(ASKED) is None
    assert checkpoint.last() == -1
    made = checkpoint.new(ASKED, LANES, 12)
    assert checkpoint.plan(ASKED) is None, "a replay that was refused leaves the folder to the next try"
    checkpoint.keep(made)
    assert checkpoint.plan(ASKED) == replace(made, is_new=False)
    assert (made.lanes, made.rows) == (LANES, 12)


def test_another_replay_is_refused_by_the_first_difference(checkpoint: Checkpoint) -> None:
    checkpoint.keep(checkpoint.new(ASKED, LANES, 12))
    with pytest.raises(StateError, match="there to is 't', and now it is 'u'"):
        checkpoint.plan({**ASKED, "to": "u"})
    with pytest.raises(StateError, match="there fromOffset is not set, and now it is 5"):
        checkpoint.plan({**ASKED, "first": 5})
    with pytest.raises(StateError, match=r"there toTime is not set, and now it is 2026-11-05T12:00:00\.000001Z"):
        checkpoint.plan({**ASKED, "until_us": 1_793_880_000_000_001})
    with pytest.raises(StateError, match="another run of the replay"):
        checkpoint.keep(checkpoint.new(ASKED, LANES, 12))


def test_the_end_of_an_epoch_is_never_changed(checkpoint: Checkpoint) -> None:
    checkpoint.keep(checkpoint.new(ASKED, LANES, 12))
    ends = [Reached((Position(0, 3), Position(0, 4)), 5, 500), Reached((Position(1, 0), Position(0, 4)), 7, 700)]
    for number, reached in enumerate(ends):
        assert checkpoint.reached(number) is None
        checkpoint.end(number, reached)
    assert [checkpoint.reached(number) for number in (0, 1)] == ends
    assert checkpoint.last() == 1
    with pytest.raises(StateError, match="another run of the replay"):
        checkpoint.end(1, ends[0])
    assert checkpoint.reached(1) == ends[1]


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"format": 1}', b'{"format": 1, "asked": 3}'])
@pytest.mark.parametrize("file", ["plan.json", "epochs/000000000.json"])
def test_a_damaged_file_is_named_with_what_to_do(
    checkpoint: Checkpoint, tmp_path: Path, file: str, content: bytes
) -> None:
    checkpoint.keep(checkpoint.new(ASKED, LANES, 12))
    checkpoint.end(0, Reached((Position(0, 3), Position(0, 4)), 5, 500))
    (tmp_path / "replay" / file).write_bytes(content)
    with pytest.raises(CorruptionError, match=f"replay: {file} is not valid: .*; restore it from a backup") as refusal:
        checkpoint.plan(ASKED) if file == "plan.json" else checkpoint.reached(0)
    assert refusal.value.details["file"] == file
