"""What is refused is one sentence: Spark shows it first, without the traceback that it puts before it otherwise."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.errors import BrokerError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable: PySpark's workers report failures without traceback. Read when one is reported."""


@contextmanager
def sentence_first() -> Generator[None]:
    """Around what Spark calls in its workers. Failures that are not the broker's or the caller's keep their traceback.

    A worker ends with the failure that it reports, so the variable lasts for this one.
    """
    try:
        yield
    except BrokerError:
        os.environ[_HIDE] = "1"
        raise
