"""Reports where a job stands, from the progress of its query: at the end of each epoch, and that it has ended.

The source reports too, but with an interval between two epochs only at the next one, and Spark kills its process at
the end.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from bascule.errors import StateError
from bascule.pipeline.checkpoints import last_epoch
from bascule.pipeline.model.job import Job
from bascule.spark.offsets import from_document
from bascule.spark.reporting import PositionReporter, ReportedQuery

__all__ = ["JobPositions"]


class JobPositions:
    """The positions of one query of a job. Does nothing for a job with `report: false`."""

    def __init__(self, job: Job) -> None:
        options = job.source_keys.parsed()
        self._checkpoint = job.checkpoint
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
        self._reached(json.loads(end) if isinstance(end, str) else end)

    def _reached(self, offsets: Mapping[str, Any]) -> None:
        marks, _ = from_document(offsets, self._query.namespace)
        if self._reporter is None:
            self._reporter = PositionReporter(self._query)
        self._reporter.reached(marks)

    def end(self) -> None:
        """The query has ended; waits for that report as long as one may take.

        A query without an epoch has ended where its checkpoint stands: its source has reported that it is there.
        """
        if self._is_on and self._reporter is None and self._checkpoint is not None:
            last = last_epoch(self._checkpoint)
            if last is not None and last.end is not None:
                with contextlib.suppress(StateError):  # not of this source: that has ended the query already
                    self._reached(last.end)
        if self._reporter is not None:
            self._reporter.stop()
