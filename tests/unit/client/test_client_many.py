"""Several subscriptions read together: turns, ends and failures."""

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from bascule.client._core.many import Many
from bascule.client._core.subscription import Subscription
from bascule.errors import UnavailableError

LIMIT_S = 10.0


class Fake:
    """A subscription with some batches, which ends after the last one."""

    def __init__(self, batches: Sequence[object] = (), *, ends: bool = True, failure: Exception | None = None) -> None:
        self.batches = list(batches)
        self.ends = ends
        self.failure = failure
        self.opened = threading.Event()

    def open(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.opened.set()

    @property
    def ended(self) -> bool:
        return self.ends and not self.batches

    def next_batch(self, timeout: float | None = None) -> object | None:
        assert timeout == 0, "a read of one partition must not delay the others"
        return self.batches.pop(0) if self.batches else None


def many(*fakes: Fake) -> Many:
    return Many({number: cast("Subscription", fake) for number, fake in enumerate(fakes)})


def read_all(subscriptions: Many) -> list[Any]:
    read: list[Any] = []
    while (batch := subscriptions.next_batch(0)) is not None:
        read.append(batch)
    return read


def test_partitions_take_turns_while_each_has_records() -> None:
    assert read_all(many(Fake(["a1", "a2", "a3"]), Fake(["b1", "b2"]), Fake(["c1"]))) == [
        "a1", "b1", "c1", "a2", "b2", "a3",
    ]  # fmt: skip


def test_a_busy_partition_does_not_starve_one_that_gets_records_later() -> None:
    late = Fake(ends=False)
    subscriptions = many(Fake(range(100)), late)
    assert [subscriptions.next_batch(0) for _ in range(3)] == [0, 1, 2]
    late.batches.append("late")
    assert "late" in [subscriptions.next_batch(0) for _ in range(2)]


def test_it_is_open_until_the_last_subscription_has_ended() -> None:
    waiting = Fake(ends=False)
    subscriptions = many(Fake(["a"]), waiting)
    assert read_all(subscriptions) == ["a"]
    assert subscriptions.is_open
    waiting.ends = True
    assert subscriptions.next_batch(0) is None
    assert not subscriptions.is_open
    assert subscriptions.next_batch(LIMIT_S) is None, "it does not wait when all have ended"


def test_all_subscriptions_are_opened() -> None:
    fakes = [Fake() for _ in range(20)]
    many(*fakes).open()
    assert all(fake.opened.is_set() for fake in fakes)


@pytest.mark.parametrize("partitions", [1, 20])
def test_a_failure_to_open_one_is_raised(partitions: int) -> None:
    failure = UnavailableError("unavailable", "the broker is not there")
    fakes = [*(Fake() for _ in range(partitions - 1)), Fake(failure=failure)]
    with pytest.raises(UnavailableError) as raised:
        many(*fakes).open()
    assert raised.value is failure
