"""Reports where a job stands, from the progress of its query: at the end of each epoch, and that it has ended.

The source reports too, but with an interval between two epochs only at the next one, and Spark kills its process at
the end.
"""

import json
from collections.abc import Mapping
from typing import Any

from bascule.pipeline.model.job import Job
from bascule.spark.offsets import from_document
from bascule.spark.reporting import PositionReporter, ReportedQuery

__all__ = ["JobPositions"]


class JobPositions:
    """The positions of one query of a job. Does nothing for a job with `report: false`."""

    def __init__(self, job: Job) -> None:
        options = job.source_keys.parsed()
        name = options.consumer_group or job.name
        self._query = ReportedQuery(options.address, options.namespace, name, options.hold)
        self._is_on = job.report
        self._reporter: PositionReporter | None = None

    def finished(self, progress: Mapping[str, Any]) -> None:
        """An epoch is finished: `progress` is Spark's, as its JSON document. Does not wait."""
        if not self._is_on:
            return
        (source,) = progress["sources"]
        end = source["endOffset"]
        marks, _ = from_document(json.loads(end) if isinstance(end, str) else end, self._query.namespace)
        if self._reporter is None:
            self._reporter = PositionReporter(self._query)
        self._reporter.reached(marks)

    def end(self) -> None:
        """The query has ended; waits for that report as long as one may take."""
        if self._reporter is not None:
            self._reporter.stop()
