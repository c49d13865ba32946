"""The targets of a job: each writes the rows of an epoch exactly once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bascule.pipeline.model.job import Job
    from bascule.pipeline.targets.streams import StreamTarget
    from bascule.pipeline.targets.table import TableTarget

__all__ = ["targets_of"]


def targets_of(job: "Job") -> "list[TableTarget | StreamTarget]":
    """The targets of a job, and last where its dead letters go.

    Raises:
        UsageError: an option of the sink is not valid.
    """
    from bascule.pipeline.model.targets import Stream  # noqa: PLC0415 - heavy
    from bascule.pipeline.targets.merged import MergeTarget  # noqa: PLC0415 - heavy
    from bascule.pipeline.targets.streams import JobSink, StreamTarget  # noqa: PLC0415 - heavy
    from bascule.pipeline.targets.table import TableTarget  # noqa: PLC0415 - heavy

    sink = JobSink.of(job) if job.streams else None
    found: list[TableTarget | StreamTarget] = []
    for section in job.every_target:
        if isinstance(section, Stream):
            assert sink is not None  # made with the streams
            found.append(StreamTarget(section, sink))
        else:
            found.append(TableTarget.of(section) if section.merge is None else MergeTarget.of(section))
    return found
