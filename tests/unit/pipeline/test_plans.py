"""The plan of a job: what Spark refuses while it is made."""

from typing import Any

import pytest
from bascule.errors import InternalError, UsageError
from bascule.pipeline import plans
from bascule.pipeline.files import parse_job
from bascule.pipeline.stages import Stages
from pyspark.errors import AnalysisException, PySparkRuntimeError

JOB = {"name": "orders", "source": {"stream": "orders"}, "targets": [{"format": "delta", "path": "lake"}]}


@pytest.mark.parametrize(
    ("raised", "expected", "sentence"),
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create: bascule.errors.UsageError: [invalid_argument] there is none",
            UsageError,
            "^there is none$",
        ),
        ("no worker", InternalError, "^Spark ended the query: no worker"),
    ],
)
def test_what_spark_raises_is_one_error_of_ours(
    raised: str, expected: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = AnalysisException if expected is UsageError else PySparkRuntimeError

    def refuse(*_: object, **__: object) -> None:
        raise kind(raised)

    monkeypatch.setattr(plans, "check_reached", lambda _: None)
    monkeypatch.setattr(plans, "resolve_ranges", lambda _: [])
    monkeypatch.setattr(Stages, "source", refuse)
    session: Any = object()
    with pytest.raises(expected, match=sentence):
        plans.plan(parse_job({**JOB, "mode": "batch"}), spark=session)
