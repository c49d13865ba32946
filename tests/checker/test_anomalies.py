"""Each anomaly is found in a hand-made bad history and in no near miss of it."""

from collections.abc import Callable

import pytest

from tests.checker import Operation, check
from tests.checker.story import Story

Writer = Callable[[Story], None]


def a1_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a 1:b", start=0)
    it.final("0:a")


def a1_near(it: Story) -> None:
    it.publish("p", "a", 0)
    it.begin("p", Operation.PUBLISH, values=("b",))  # never acked
    it.final("0:a")


def a2_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a", start=0)
    it.final("0:a 1:b")


def a2_near(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "1:b", start=1)  # the first one was not requested
    it.final("0:a 1:b")


def a3_bad(it: Story) -> None:
    it.publish("p", "a", 0, idempotent=True)
    it.final("0:a 1:a")


def a3_near(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a",))
    it.publish("p", "a", 1)  # sent again without idempotence
    it.final("0:a 1:a")


def a4_bad(it: Story) -> None:
    it.publish("p", "a", 0)
    it.publish("p", "b", 0)
    it.final("0:b")


def a4_near(it: Story) -> None:
    it.publish("p", "a", 0, partition=1)
    it.publish("p", "b", 0)
    begun = it.begin("final", Operation.FINAL, partition=1)
    it.recorder.ok(begun, offsets=(0,), values=("a",))
    it.final("0:b")


def a5_bad(it: Story) -> None:
    it.recorder.fail(it.begin("p", Operation.PUBLISH, values=("a",)))
    it.final("0:a")


def a5_near(it: Story) -> None:
    it.recorder.info(it.begin("p", Operation.PUBLISH, values=("a",)))
    it.final("0:a")


def a6_bad(it: Story) -> None:
    it.publish("p", "a", 0)
    it.final("0:a 1:z")


def a6_near(it: Story) -> None:
    it.publish("p", "a", 0)
    it.begin("q", Operation.PUBLISH, values=("z",))
    it.final("0:a 1:z")


def a7_bad(it: Story) -> None:
    it.publish("p", "a", 1)
    it.begin("q", Operation.PUBLISH, values=("z",))
    it.final("0:a 1:z")


def a7_near(it: Story) -> None:
    it.begin("q", Operation.PUBLISH, values=("z",))
    it.publish("p", "a", 1)
    it.final("0:z 1:a")


def a8_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a 1:b 1:b", start=0)
    it.final("0:a 1:b")


def a8_near(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a", start=0)
    it.poll("s", "0:a 1:b", start=0)  # another reader
    it.final("0:a 1:b")


def a9_bad(it: Story) -> None:
    it.publish("p", "a b c", 0)
    it.poll("s", "1:b", start=1)
    it.poll("r", "0:a 2:c", start=0)
    it.final("0:a 1:b 2:c")


def a9_near(it: Story) -> None:
    it.publish("p", "a b c", 0, record_keys=("x", "y", "y"))
    it.poll("r", "0:a 2:c", start=0)  # compaction removed the one between
    it.final("0:a 2:c", compacted=True)


def a10_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a 1:b", start=0)
    it.poll("r", "1:b")
    it.final("0:a 1:b")


def a10_near(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a 1:b", start=0)
    begun = it.begin("r", Operation.POLL, start=1, notice="seek")
    it.recorder.ok(begun, offsets=(1,), values=("b",))
    it.final("0:a 1:b")


def a11_bad(it: Story) -> None:
    it.publish("p", "a b c", 0)
    it.poll("s", "0:a 1:b 2:c", start=0)
    it.poll("r", "0:a", start=0)
    it.poll("r", "2:c")
    it.final("0:a 1:b 2:c")


def a11_near(it: Story) -> None:
    it.publish("p", "a b c", 0)
    it.poll("r", "0:a", start=0)
    it.poll("r", "")
    it.poll("r", "1:b 2:c")
    it.final("0:a 1:b 2:c")


def a12_bad(it: Story) -> None:
    first = it.begin("p", Operation.PUBLISH, values=("a",))
    second = it.begin("p", Operation.PUBLISH, values=("b",))
    it.recorder.ok(first, offsets=(1,))
    it.recorder.ok(second, offsets=(0,))
    it.final("0:b 1:a")


def a12_near(it: Story) -> None:
    first = it.begin("p", Operation.PUBLISH, values=("a",))
    second = it.begin("q", Operation.PUBLISH, values=("b",))  # another producer
    it.recorder.ok(first, offsets=(1,))
    it.recorder.ok(second, offsets=(0,))
    it.final("0:b 1:a")


def a13_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.poll("r", "0:a 1:b", start=0, high_watermark=2)
    it.poll("s", "0:a", start=0, high_watermark=1)
    it.final("0:a 1:b")


def a13_near(it: Story) -> None:
    it.publish("p", "a b", 0)
    slow = it.begin("s", Operation.POLL, start=0)  # sent before the larger one was returned
    it.poll("r", "0:a 1:b", start=0, high_watermark=2)
    it.recorder.ok(slow, offsets=(0,), values=("a",), high_watermark=1)
    it.final("0:a 1:b")


def a14_bad(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a",))
    it.poll("r", "0:a", start=0)
    it.final("")


def a14_near(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a",))
    it.poll("r", "0:a", start=0)
    it.final("", log_start=1)  # retention removed it


def a15_bad(it: Story) -> None:
    it.publish("p", "a", 1)
    it.publish("q", "b", 0)
    it.final("0:b 1:a")


def a15_near(it: Story) -> None:
    early = it.begin("q", Operation.PUBLISH, values=("b",))  # sent before the other's ack
    it.publish("p", "a", 1)
    it.recorder.ok(early, offsets=(0,))
    it.final("0:b 1:a")


def a16_bad(it: Story) -> None:
    it.commit(1, 5)
    it.commit(2, 7)
    it.fetch(1, 5)


def a16_near(it: Story) -> None:
    it.commit(1, 5)
    it.begin("other", Operation.COMMIT, group="g", generation=2, position=3)
    it.fetch(2, 3)  # of a newer generation, although no member was notified


def a17_bad(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.final("0:a 1:b", replica="one", digests=("x", "y"))
    it.final("0:a 1:b", replica="two", digests=("x", "z"))


def a17_near(it: Story) -> None:
    it.publish("p", "a b", 0)
    it.final("0:a 1:b", replica="one", digests=("x", "y"))
    it.final("1:b", replica="two", digests=("y",), log_start=1)  # its retention is further


def a18_bad(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a", "b"), atomic=True)
    it.final("0:a")


def a18_near(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a", "b"), atomic=True)
    it.publish("q", "c", 0)
    it.final("0:c")


def a4_bad_over_time(it: Story) -> None:
    it.begin("p", Operation.PUBLISH, values=("a",))
    it.begin("q", Operation.PUBLISH, values=("b",))
    it.poll("r", "0:a", start=0)
    it.poll("s", "0:b", start=0)


def a16_bad_incarnation(it: Story) -> None:
    it.commit(1, 5)
    it.fetch(1, 5, incarnation=9)


def a16_bad_generation(it: Story) -> None:
    it.commit(2, 5)
    it.commit(1, 6)


def a18_bad_watermark(it: Story) -> None:
    it.publish("p", "a b", 0, atomic=True)
    it.poll("r", "0:a", start=0, high_watermark=1)
    it.poll("r", "1:b", high_watermark=2)
    it.final("0:a 1:b")


BAD: dict[str, tuple[Writer, ...]] = {
    "A1": (a1_bad,),
    "A2": (a2_bad,),
    "A3": (a3_bad,),
    "A4": (a4_bad, a4_bad_over_time),
    "A5": (a5_bad,),
    "A6": (a6_bad,),
    "A7": (a7_bad,),
    "A8": (a8_bad,),
    "A9": (a9_bad,),
    "A10": (a10_bad,),
    "A11": (a11_bad,),
    "A12": (a12_bad,),
    "A13": (a13_bad,),
    "A14": (a14_bad,),
    "A15": (a15_bad,),
    "A16": (a16_bad, a16_bad_incarnation, a16_bad_generation),
    "A17": (a17_bad,),
    "A18": (a18_bad, a18_bad_watermark),
}
NEAR: dict[str, Writer] = {
    "A1": a1_near,
    "A2": a2_near,
    "A3": a3_near,
    "A4": a4_near,
    "A5": a5_near,
    "A6": a6_near,
    "A7": a7_near,
    "A8": a8_near,
    "A9": a9_near,
    "A10": a10_near,
    "A11": a11_near,
    "A12": a12_near,
    "A13": a13_near,
    "A14": a14_near,
    "A15": a15_near,
    "A16": a16_near,
    "A17": a17_near,
    "A18": a18_near,
}


def test_every_anomaly_has_a_bad_and_a_good_history() -> None:
    assert list(BAD) == list(NEAR) == [f"A{number}" for number in range(1, 19)]


@pytest.mark.parametrize(("code", "write"), [(code, write) for code, stories in BAD.items() for write in stories])
def test_the_anomaly_is_found(code: str, write: Writer) -> None:
    story = Story()
    write(story)
    verdict = check(story.recorder.history())
    assert code in verdict.codes, str(verdict)
    assert not verdict.passed


@pytest.mark.parametrize("code", NEAR)
def test_the_near_miss_passes(code: str) -> None:
    story = Story()
    NEAR[code](story)
    verdict = check(story.recorder.history())
    assert verdict.passed, str(verdict)


def test_what_an_ack_of_one_leader_does_not_promise_is_counted_only() -> None:
    story = Story()
    story.publish("p", "a b", 0, policy="leader")
    story.final("0:a")
    verdict = check(story.recorder.history())
    assert verdict.passed
    assert dict(verdict.tolerated) == {"A1": 1, "A2": 1}


def test_class_memory_may_lose_records_only_when_all_lose_power() -> None:
    verdicts: list[bool] = []
    for fault in ("kill of all", "power loss of all"):
        story = Story()
        story.publish("p", "a b", 0, durability="memory")
        story.recorder.fault(fault)()
        story.final("0:a")
        verdicts.append(check(story.recorder.history()).passed)
    assert verdicts == [False, True]
