"""Errors as `[code] sentence`, which Spark shows without a traceback before it.

Spark passes on only the class and the text of an exception, so the text has the code too, as Flight's errors do.
"""

import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from bascule._error_codes import CODES
from bascule.errors import BrokerError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable: PySpark's workers report failures without traceback. Read when one is reported."""


_SHOWN: Final = re.compile(r"\[([a-z_]+)\] (.+)", re.DOTALL)


@contextmanager
def sentence_first() -> Generator[None]:
    """For code that Spark calls in its workers. Errors that are not the broker's or the caller's keep their traceback.

    A worker ends after the error that it reports, so the variable affects only this one.

    Raises:
        BrokerError: that of the code within, of the same class, with its code before its sentence.
    """
    try:
        yield
    except BrokerError as failure:
        os.environ[_HIDE] = "1"
        raise with_code(failure) from failure


def _same(failure: Exception) -> Exception:
    return failure


def shortly(
    function: Callable[..., object], error_of: Callable[[Exception], Exception] = _same
) -> Callable[[Any, int], None]:
    """A function for `foreachBatch` whose errors are reported as one line.

    py4j reports a failure of a function by its traceback, with that of each cause, and Spark prints it twice.

    Args:
        function: of a DataFrame and the number of the epoch.
        error_of: the error of the broker or of the caller for an exception of the function, which is raised without a
            cause. For another one, or `internal`, the exception itself is raised.
    """

    def call(batch: Any, epoch: int) -> None:
        try:
            function(batch, epoch)
        except Exception as failure:
            found = error_of(failure)
            if not isinstance(found, BrokerError) or found.code == "internal":
                raise
            raise with_code(found) from None

    return call


def with_code(failure: BrokerError) -> BrokerError:
    """The same error, with its code before its sentence."""
    if split_code(str(failure))[0]:
        return failure
    return type(failure)(failure.code, f"[{failure.code}] {failure}", failure.details)


def split_code(text: str) -> tuple[str, str]:
    """(code, sentence) of the text of an error that `sentence_first` raised; the code is empty if there is none."""
    found = _SHOWN.fullmatch(text)
    return (found[1], found[2]) if found is not None and found[1] in CODES else ("", text)
