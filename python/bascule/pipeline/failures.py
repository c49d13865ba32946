"""What ended a query: one error of ours with one sentence, and whether a restart may help.

Spark reports failures of tasks and planners as text with the class of the Python exception in it, and the code of ours
(`bascule.spark.sentences`). These decide, by the names that Spark and Python give; sentences are passed on and never
interpreted.
"""

import re
from typing import Final

from bascule import errors
from bascule.errors import BrokerError, InternalError, StateError, UnavailableError, UsageError
from bascule.pipeline.expectations import VIOLATION
from bascule.pipeline.sql import first_line
from bascule.pipeline.stages import DECODE_FAILED
from bascule.spark.sentences import split_code

__all__ = ["failure_of", "may_pass"]

_LONGEST: Final = 1000
_CALL: Final = "An error occurred while calling "
"""First line of errors of calls from Python into the JVM."""
_OURS: Final = re.compile(r"(?:^|[\s.:])(?:bascule\.errors\.)?(\w+Error): (.+)")
"""The last line of a Python traceback: a class, and its message."""
_CODES: Final = {
    "UsageError": "invalid_argument",
    "StateError": "failed_precondition",
    "AccessError": "permission_denied",
    "CapacityError": "busy",
    "UnavailableError": "unavailable",
    "OutcomeUnknownError": "outcome_unknown",
    "CorruptionError": "damaged",
    "InternalError": "internal",
}
"""A code for each class, for errors that reach the driver as text without one."""
_OF_A_ROW: Final = re.compile(
    r"\[[A-Z][A-Z0-9_.]*\] (?:(?!\[[A-Z][A-Z0-9_.]*\] |SQLSTATE: ).)*SQLSTATE: (?:22[0-9A-Z]{3}|P0001)", re.DOTALL
)
"""An error that an expression raises for a row: of SQLSTATE's class 22, "data exception", or by `raise_error`."""
_OF_THE_QUERY: Final = re.compile(
    r"=== Streaming Query ===.*?(?=\n\s*at |\nJVM stacktrace:|\nCaused by: |\Z)", re.DOTALL
)
"""What Spark adds to the cause: the query, with its plan, which has the texts of errors that no record has raised."""
_ANOTHER_RUN: Final = re.compile(r"\[(?:CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY)\]")
"""Spark's conditions for a query whose checkpoint another run has."""
_MARKS: Final = (VIOLATION, DECODE_FAILED)
_SENTENCES: Final = {
    VIOLATION: "a record fails an expectation that it must meet: ",
    DECODE_FAILED: "a record cannot be decoded: ",
}


def failure_of(failure: BaseException) -> BrokerError:
    """The error for what a query or an epoch raised.

    Args:
        failure: of Spark, or ours.
    """
    if isinstance(failure, BrokerError):
        return failure
    text = _OF_THE_QUERY.sub("", str(failure))
    for mark in _MARKS:
        if mark in text:
            sentence = text.partition(mark)[2].partition("\n")[0].partition(" SQLSTATE")[0]
            return StateError("record_invalid", f"{_SENTENCES[mark]}{sentence.strip()}"[:_LONGEST])
    found = [(name, message) for name, message in _OURS.findall(text) if name in _CODES]
    if found:
        name, message = found[-1]
        code, sentence = split_code(message.strip())
        return errors.error(code or _CODES[name], sentence[:_LONGEST])
    if _is_analysis(failure) and _OF_A_ROW.search(text) is None:
        return UsageError("invalid_argument", first_line(_as_exception(failure)))
    return _of_spark(text)


def _of_spark(text: str) -> BrokerError:
    """The error for what Spark itself raised while the query ran."""
    if _ANOTHER_RUN.search(text) is not None:
        sentence = "another run uses the checkpoint of this job: stop one of them, and start the other again"
        return StateError("sink_conflict", sentence)
    if (of_a_row := _OF_A_ROW.search(text)) is not None:
        sentence = " ".join(of_a_row[0].rpartition("SQLSTATE: ")[0].split())
        return StateError("record_invalid", f"an expression fails for a record: {sentence}"[:_LONGEST])
    return InternalError("internal", f"Spark ended the query: {_cause(text)}"[:_LONGEST])


def may_pass(error: BrokerError) -> bool:
    """Whether the same query may succeed later without a change: nothing answered, or Spark itself failed."""
    return error.retry == "backoff" or isinstance(error, (UnavailableError, InternalError))


def _cause(text: str) -> str:
    """The first line that Spark's exceptions have, without that of the call from Python."""
    lines = [line.strip().removeprefix(": ") for line in text.strip().splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(_CALL)), text.strip())


def _as_exception(failure: BaseException) -> Exception:
    return failure if isinstance(failure, Exception) else RuntimeError(str(failure))


def _is_analysis(failure: BaseException) -> bool:
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - heavy

    return isinstance(failure, (AnalysisException, ParseException))
