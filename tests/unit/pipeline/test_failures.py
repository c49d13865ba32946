"""What Spark raises becomes one error of ours, and a restart is tried only when it may help."""

import pytest
from bascule.errors import AccessError, BrokerError, InternalError, StateError, UnavailableError, UsageError
from bascule.pipeline.expectations import VIOLATION
from bascule.pipeline.failures import failure_of, may_pass
from bascule.pipeline.stages import DECODE_FAILED
from bascule.spark.sentences import sentence_first
from pyspark.errors import AnalysisException

TRACE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST
=== Streaming Query ===
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "reading.py", line 3, in read
{0}
"""


@pytest.mark.parametrize("mark", [VIOLATION, DECODE_FAILED])
@pytest.mark.parametrize("rest", ["", "\n\tat org.apache.spark.sql.X\nCaused by: org.apache.spark.SparkException: x"])
def test_the_texts_of_errors_in_the_plan_of_the_query_are_not_its_failure(mark: str, rest: str) -> None:
    text = f"""[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "reading.py", line 3, in read
bascule.errors.UnavailableError: [unavailable] no broker answers at b:1
 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: orders [id = 1]
Current State: ACTIVE

Logical Plan:
Project [raise_error(USER_RAISED_EXCEPTION, map(errorMessage, concat({mark}, cast(stream#0 as string))), NullType)]
+- StreamingDataSourceV2ScanRelation[stream#0]{rest}
"""
    found = failure_of(RuntimeError(text))
    assert isinstance(found, UnavailableError)
    assert str(found).startswith("no broker answers at b:1")
    assert may_pass(found)


@pytest.mark.parametrize(
    ("text", "kind", "sentence", "passes"),
    [
        (
            "bascule.errors.UnavailableError: no broker answers at b:1",
            UnavailableError,
            "no broker answers at b:1",
            True,
        ),
        ("bascule.errors.StateError: s was deleted", StateError, "s was deleted", False),
        ("UsageError: option x is 5", UsageError, "option x is 5", False),
        ("bascule.errors.AccessError: no right", AccessError, "no right", False),
        (
            f"[USER_RAISED_EXCEPTION] {VIOLATION}positive (record s/0 offset 5) SQLSTATE: P0001",
            StateError,
            "positive (record s/0 offset 5)",
            False,
        ),
        (
            f"[USER_RAISED_EXCEPTION] {DECODE_FAILED}s/0 offset 1: json MalformedJson: x SQLSTATE: P0001",
            StateError,
            "json MalformedJson: x",
            False,
        ),
        (
            "SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'a\n[b]' of the type X. SQLSTATE: 22018\n==",
            StateError,
            "an expression fails for a record: [CAST_INVALID_INPUT] The value 'a [b]' of the type",
            False,
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Multiple jobs", StateError, "another run uses the checkpoint", False),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", StateError, "[DIVIDE_BY_ZERO] Division", False),
        ("[USER_RAISED_EXCEPTION] too large SQLSTATE: P0001", StateError, "[USER_RAISED_EXCEPTION] too", False),
        ("[FAILED_READ_FILE] x SQLSTATE: KD001", InternalError, "Spark ended the query: [STREAM_FAILED]", True),
        ("ExecutorLostFailure (executor 1 exited)", InternalError, "Spark ended the query: [STREAM_FAILED]", True),
    ],
)
def test_the_class_in_the_text_decides(text: str, kind: type[BrokerError], sentence: str, passes: bool) -> None:
    found = failure_of(RuntimeError(TRACE.format(text)))
    assert type(found) is kind
    assert sentence in str(found)
    assert "\n" not in str(found)
    assert may_pass(found) is passes


def test_the_code_of_an_error_is_that_which_spark_was_given() -> None:
    with pytest.raises(StateError) as raised, sentence_first(), sentence_first():
        raise StateError("sink_replay_differs", "epoch 3 has other rows", {"epoch": 3})
    assert str(raised.value) == "[sink_replay_differs] epoch 3 has other rows"
    assert (raised.value.code, raised.value.details) == ("sink_replay_differs", {"epoch": 3})
    found = failure_of(RuntimeError(TRACE.format(f"bascule.errors.StateError: {raised.value}")))
    assert (type(found), found.code, str(found)) == (StateError, "sink_replay_differs", "epoch 3 has other rows")
    found = failure_of(RuntimeError(TRACE.format("bascule.errors.StateError: [no_such_code] why")))
    assert (found.code, str(found)) == ("failed_precondition", "[no_such_code] why")


def test_the_cause_is_shown_not_the_call() -> None:
    text = "An error occurred while calling o643.save.\n: org.apache.spark.SparkException: the worker died\n\tat x"
    assert str(failure_of(RuntimeError(text))).endswith(
        "ended the query: org.apache.spark.SparkException: the worker died"
    )


def test_a_record_that_may_not_fail_has_a_code_of_its_own() -> None:
    assert failure_of(RuntimeError(f"x {VIOLATION}positive")).code == "record_invalid"
    assert failure_of(RuntimeError(f"x {DECODE_FAILED}s/0")).code == "record_invalid"


def test_ours_is_kept_and_what_spark_refuses_is_wrong_usage() -> None:
    ours = UnavailableError("unavailable", "gone")
    assert failure_of(ours) is ours
    refused = failure_of(AnalysisException("[UNRESOLVED_COLUMN] a is not there.\n'Project 'a"))
    assert isinstance(refused, UsageError)
    assert str(refused) == "[UNRESOLVED_COLUMN] a is not there."
    assert not may_pass(refused)
