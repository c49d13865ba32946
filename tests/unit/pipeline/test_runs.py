"""Whether a run was stopped before its end."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from bascule.errors import InternalError, StateError
from bascule.pipeline.epochs import Gate
from bascule.pipeline.files import parse_job
from bascule.pipeline.runs import _Runner  # pyright: ignore[reportPrivateUsage]


class Query:
    """A streaming query without rows; each question whether it ended takes the next answer."""

    recentProgress: tuple[Any, ...] = ()  # noqa: N815 - Spark's name
    isActive = False  # noqa: N815 - Spark's name

    def __init__(self, *answers: bool) -> None:
        self._answers = iter(answers)

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        """Whether it ended."""
        return next(self._answers)


class Broken(Query):
    """A query whose planner has ended, as by a Ctrl-C that reaches the whole group of processes."""

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        """Fails."""
        raise RuntimeError("java.io.EOFException")


def runner_of(mode: str, gate: Gate) -> Any:
    document = {
        "name": "orders",
        "source": {"stream": "orders"},
        "targets": [{"format": "delta", "path": "lake"}],
        "checkpoint": "checkpoint",
        "mode": mode,
    }
    return _Runner(parse_job(document), cast("Any", None), None, gate)


def test_a_query_that_ends_because_of_a_stop_is_stopped_and_otherwise_failed() -> None:
    gate = Gate()
    runner = runner_of("availableNow", gate)
    writer = SimpleNamespace(failure=None)
    with pytest.raises(InternalError, match="EOFException"):
        runner._watch(Broken(), writer)
    gate.stop()
    runner._watch(Broken(), writer)
    assert runner._outcome().stopped
    with pytest.raises(StateError, match="of the target"):
        runner._watch(Broken(), SimpleNamespace(failure=StateError("sink_conflict", "of the target")))


@pytest.mark.parametrize(
    ("mode", "answers", "is_stopped"),
    [
        ("availableNow", (False, True), True),
        ("availableNow", (True,), False),
        ("continuous", (False,), True),
        ("continuous", (True,), True),
    ],
)
def test_a_stop_in_the_last_epoch_does_not_make_a_finished_run_a_stopped_one(
    mode: str, answers: tuple[bool, ...], *, is_stopped: bool
) -> None:
    gate = Gate()
    runner = runner_of(mode, gate)
    gate.stop()
    runner._watch(Query(*answers), None)
    assert runner._outcome().stopped is is_stopped
