"""Asks the brokers of a job before it begins: one that was never reached is a mistake in the job, which no restart and
no waiting repairs.
"""

from typing import TYPE_CHECKING, Final

from bascule.errors import BrokerError, InternalError, UnavailableError, error
from bascule.spark.connection import Broker
from bascule.spark.connection_options import RETRY_DEADLINE_MS, parse_address
from bascule.spark.unreached import shown_address

if TYPE_CHECKING:
    from bascule.pipeline.model.job import Job

__all__ = ["check_reached"]

START_MS: Final = 3_000
"""How long a broker is tried before a job begins, unless the job sets `source.retryDeadlineMs`."""
ANSWER_MS: Final = 5_000
"""How long a broker may take to answer then."""


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
        try:
            Broker(address, source.namespace, min(source.request_timeout_ms, ANSWER_MS), wait_ms).streams()
        except BrokerError as failure:
            if isinstance(failure, (UnavailableError, InternalError)):
                raise _never_reached(failure, job.name, address, key) from None


def _never_reached(failure: BrokerError, job: str, address: str, key: str) -> BrokerError:
    place = f"broker at {shown_address(address)}"
    reason = str(failure)
    if place not in reason:
        reason = f"{place}: {reason}; check the address, and that a broker runs there"
    text = (
        f"job {job} has not started, because the broker of {key} was not reached: {reason}. To wait for a broker that "
        f"starts later, set source.{RETRY_DEADLINE_MS.name}"
    )
    return error(failure.code, text, {**failure.details, "key": key})
