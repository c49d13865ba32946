"""Errors as one sentence, which Spark shows without a traceback before it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.errors import BrokerError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable: PySpark's workers report failures without traceback. Read when one is reported."""


@contextmanager
def sentence_first() -> Generator[None]:
    """For code that Spark calls in its workers. Errors that are not the broker's or the caller's keep their traceback.

    A worker ends after the error that it reports, so the variable affects only this one.
    """
    try:
        yield
    except BrokerError:
        os.environ[_HIDE] = "1"
        raise
