"""Asks the brokers of a job before it begins: one that was never reached is a mistake in the job, which no restart and
no waiting repairs.
"""

from typing import TYPE_CHECKING

from bascule.errors import error
from bascule.spark.connection import Broker
from bascule.spark.connection_options import RETRY_DEADLINE_MS, parse_address
from bascule.spark.reaching import ANSWER_MS, START_MS, never_reached

if TYPE_CHECKING:
    from bascule.pipeline.model.job import Job

__all__ = ["check_reached"]


def check_reached(job: "Job") -> None:
    """Ask each broker that the job reads from or writes streams to. Any answer suffices, also that the job lacks a
    right.

    Raises:
        UnavailableError: a broker did not answer within `START_MS`, or within `source.retryDeadlineMs` if the job has
            it; the sentence names its address.
        InternalError: what answers is not a broker.
    """
    source = job.source_keys.parsed()
    is_given = RETRY_DEADLINE_MS.name in job.source_keys.options()
    wait_ms = source.retry_deadline_ms if is_given else START_MS
    places = {source.address: "source.address"}
    if job.streams and job.sink.address is not None:
        places.setdefault(parse_address(job.sink.address), "sink.address")
    for address, key in places.items():
        broker = Broker(address, source.namespace, min(source.request_timeout_ms, ANSWER_MS), wait_ms)
        if (failure := never_reached(broker, address)) is not None:
            text = (
                f"job {job.name} has not started, because the broker of {key} was not reached: {failure}. To wait for "
                f"a broker that starts later, set source.{RETRY_DEADLINE_MS.name}"
            )
            raise error(failure.code, text, {**failure.details, "key": key}) from None
