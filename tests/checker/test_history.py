"""Histories in files, vacuous runs, and the checker's speed."""

import time
from pathlib import Path

import pytest

from tests.checker import Event, History, Operation, Phase, Recorder, check
from tests.checker.story import Story


def recorded() -> Story:
    story = Story()
    story.begin("run", Operation.RUN, expected=2)
    story.recorder.fault("kill")()
    story.publish("p", "a b", 0)
    story.poll("r", "0:a 1:b", start=0, high_watermark=2)
    story.final("0:a 1:b")
    return story


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    story = recorded()
    story.recorder.save(tmp_path / "history.jsonl")
    assert History.load(tmp_path / "history.jsonl").calls == story.recorder.history().calls


def test_a_misspelt_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"time": 1, "process": "p", "call": 1, "operation": "poll", "phase": "invoke", "strat": 1}\n')
    with pytest.raises(ValueError, match=r"history.jsonl:1: unknown fields in an event: strat"):
        History.load(path)


def test_an_answer_without_a_question_is_refused() -> None:
    lonely = Event(time=1, process="p", call=1, operation=Operation.POLL, phase=Phase.OK)
    with pytest.raises(ValueError, match="without having begun"):
        History.of([lonely])


def test_a_whole_run_is_not_vacuous() -> None:
    verdict = check(recorded().recorder.history())
    assert (verdict.passed, verdict.vacuous) == (True, "")


def test_a_run_without_a_fault_is_vacuous() -> None:
    story = Story()
    story.publish("p", "a", 0)
    story.final("0:a")
    assert check(story.recorder.history()).vacuous == "no fault was fired"


def test_a_run_of_unknown_outcomes_is_vacuous() -> None:
    story = recorded()
    story.begin("p", Operation.PUBLISH, values=("c",))
    assert "1 of 3 calls have an unknown outcome" in check(story.recorder.history()).vacuous


def test_a_run_that_did_too_little_is_vacuous() -> None:
    story = recorded()
    story.begin("run", Operation.RUN, expected=4)
    assert "2 calls succeeded, 4 were expected" in check(story.recorder.history()).vacuous


def test_a_partition_that_was_not_read_at_the_end_makes_a_run_vacuous() -> None:
    story = recorded()
    begun = story.begin("p", Operation.PUBLISH, values=("z",), partition=7)
    story.recorder.ok(begun, offsets=(0,))
    assert "no final read of partitions [7]" in check(story.recorder.history()).vacuous


def big(batches: int) -> History:
    recorder = Recorder()
    for batch in range(batches):
        values = tuple(f"p:{batch}:{i}" for i in range(10))
        offsets = tuple(range(batch * 10, batch * 10 + 10))
        recorder.ok(recorder.invoke("p", Operation.PUBLISH, values=values), offsets=offsets)
        poll = recorder.invoke("r", Operation.POLL, start=0 if batch == 0 else None)
        recorder.ok(poll, offsets=offsets, values=values, high_watermark=offsets[-1] + 1)
        recorder.ok(recorder.invoke("f", Operation.FINAL), offsets=offsets, values=values)
    return recorder.history()


def test_the_time_grows_with_the_history_only() -> None:
    took: list[float] = []
    for batches in (500, 4_000):
        history = big(batches)
        started = time.perf_counter()
        assert check(history).passed
        took.append(time.perf_counter() - started)
    assert took[1] < took[0] * 8 * 4, f"eight times the history took {took[1] / took[0]:.0f} times as long"
