"""What a re-drive counted stays in its plan."""

from pathlib import Path

from bascule.spark.replaying.api import storage_at
from bascule.spark.replaying.letter_plans import COUNTED, Counted, LetterCheckpoint

ASKED = {"id": "fix-1", "to": None}


def test_what_was_counted_is_found_by_later_runs_and_not_compared(tmp_path: Path) -> None:
    first = LetterCheckpoint(storage_at(str(tmp_path / "fix-1")))
    assert first.counted() is None
    counted = Counted(("orders", "payments"))
    first.keep(first.new({**ASKED, COUNTED: counted.to_document()}, (), 7))
    later = LetterCheckpoint(storage_at(str(tmp_path / "fix-1")))
    plan = later.plan(ASKED)
    assert plan is not None
    assert (plan.rows, later.counted()) == (7, counted)


def test_a_plan_that_does_not_say_it_is_counted_again(tmp_path: Path) -> None:
    kept = LetterCheckpoint(storage_at(str(tmp_path)))
    kept.keep(kept.new(ASKED, (), 7))
    assert kept.counted() is None
