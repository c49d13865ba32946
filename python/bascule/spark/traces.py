"""Failures of a query without the frames of PySpark, and once.

PySpark reports what a function of `foreachBatch` raised as a traceback in the message, and makes it the traceback of
the exception too. It raises what `toLocalIterator` failed of as an error of Java, with all frames of the JVM.
"""

import re
from functools import wraps
from importlib import import_module
from typing import Any, Final

__all__ = ["FRAME", "HEAD", "show_once", "without_frames"]

FRAME: Final = r"(?m)^ +File .*/(?:(?:pyspark|py4j)/.*|bascule/spark/sentences.py.*)\n(?:    .*\n)*"
"""A frame of a traceback in PySpark or py4j, or in what reports our errors to them, with its lines of code. For Python
and for Log4j, so without braces, which that counts."""
HEAD: Final = r"Traceback \(most recent call last\):\n(?! +File)"
"""The head of a traceback without frames."""
_OF_A_FUNCTION: Final = "[FOREACH_BATCH_USER_FUNCTION_ERROR]"
_WAITED: Final = "Exception thrown in awaitResult"
"""What the JVM says when another thread of it has failed; the cause is the reason."""


def without_frames(text: str) -> str:
    """A message of Spark without the frames of PySpark in its traceback."""
    return re.sub(HEAD, "", re.sub(FRAME, "", text))


def show_once() -> None:
    """Let PySpark raise failures with their cause, and those of `foreachBatch` with one traceback; for this process.

    PySpark of another version, without the function that makes its exceptions, is left as it is.
    """
    captured: Any = import_module("pyspark.errors.exceptions.captured")
    original = getattr(captured, "convert_exception", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def convert(failure: Any) -> Any:
        converted = original(_reason(failure))
        text = getattr(converted, "_desc", None)
        if not isinstance(text, str) or _OF_A_FUNCTION not in text:
            return converted
        converted._desc = without_frames(text)  # noqa: SLF001 - no public way
        return converted.with_traceback(None)

    captured.convert_exception = convert


def _reason(failure: Any) -> Any:
    """What the JVM waited for and failed."""
    while str(failure.getMessage()).startswith(_WAITED) and (cause := failure.getCause()) is not None:
        failure = cause
    return failure
