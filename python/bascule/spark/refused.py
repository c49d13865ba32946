"""The reader of a streaming read that is refused."""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bascule.errors import BrokerError
from bascule.spark.sentences import sentence_first

__all__ = ["RefusedStreamReader"]


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the refusal from whatever Spark calls first.

    Spark 4.3 reports an exception of `DataSource.streamReader` as UnboundLocalError, because it stops the reader that
    it does not have.
    """

    def __init__(self, failure: BrokerError) -> None:
        self._failure = failure

    @sentence_first()
    def _refuse(self) -> NoReturn:
        raise self._failure

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises the refusal."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """Raises the refusal."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raises the refusal."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raises the refusal."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 - Spark's interface
        """Raises the refusal."""
        self._refuse()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Nothing: Spark also asks after a failure."""
        return None
