"""Whether a run was stopped before its end."""

from typing import Any, cast

import pytest
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
    document = {
        "name": "orders",
        "source": {"stream": "orders"},
        "targets": [{"format": "delta", "path": "lake"}],
        "checkpoint": "checkpoint",
        "mode": mode,
    }
    gate = Gate()
    runner: Any = _Runner(parse_job(document), cast("Any", None), None, gate)
    gate.stop()
    runner._watch(Query(*answers), None)
    assert runner._outcome().stopped is is_stopped
