"""Tests of the linearizability check."""

from tests.checker import Operation, check
from tests.checker.linearizable import search
from tests.checker.story import Story


def outcome(story: Story, bound: int = 1_000) -> bool | None:
    (found,) = search(story.recorder.history(), bound)
    return found.linearizable


def test_a_stale_read_is_not_linearizable() -> None:
    story = Story()
    story.write("a", "1")
    story.write("a", "2")
    story.read("b", "1")
    assert outcome(story) is False
    assert not check(story.recorder.history()).passed


def test_a_read_during_a_write_may_see_either() -> None:
    for seen in ("1", "2"):
        story = Story()
        story.write("a", "1")
        slow = story.begin("a", Operation.WRITE, key="k", value="2")
        story.read("b", seen)
        story.recorder.ok(slow)
        assert outcome(story) is True


def test_two_reads_may_not_disagree_about_the_order() -> None:
    story = Story()
    slow = story.begin("a", Operation.WRITE, key="k", value="2")
    story.read("b", "2")
    story.read("c", None)
    story.recorder.ok(slow)
    assert outcome(story) is False


def test_a_write_of_unknown_outcome_may_take_effect_late_or_never() -> None:
    story = Story()
    story.begin("a", Operation.WRITE, key="k", value="2")
    story.write("b", "1")
    story.read("b", "1")
    story.read("b", "2")
    assert outcome(story) is True
    story.read("b", "1")
    assert outcome(story) is False


def test_only_one_of_two_swaps_may_win() -> None:
    story = Story()
    swaps = [story.begin(name, Operation.SWAP, key="k", expected=None, value=name) for name in ("a", "b")]
    story.recorder.ok(swaps[0])
    story.recorder.fail(swaps[1])
    assert outcome(story) is True
    both = Story()
    for begun in [both.begin(name, Operation.SWAP, key="k", expected=None, value=name) for name in ("a", "b")]:
        both.recorder.ok(begun)
    assert outcome(both) is False


def test_a_commit_fenced_by_a_newer_generation_does_not_fit_in() -> None:
    story = Story()
    story.commit(2, 5)
    story.fetch(2, 5)
    story.commit(1, 9)
    assert outcome(story) is False


def test_the_search_gives_up_at_its_bound() -> None:
    story = Story()
    begun = [story.begin(f"w{i}", Operation.WRITE, key="k", value=str(i)) for i in range(12)]
    for call in begun:
        story.recorder.ok(call)
    assert outcome(story) is None
    assert check(story.recorder.history()).unknown == []
