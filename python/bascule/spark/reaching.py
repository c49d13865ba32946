"""Asks the broker before a query or a replay begins: one that was never reached is a mistake in the call, which no
waiting repairs.
"""

from collections.abc import Mapping
from typing import Final

from bascule.errors import BrokerError, InternalError, UnavailableError, error
from bascule.spark.connection import Broker
from bascule.spark.connection_options import ADDRESS, CONNECTION, NAMESPACE, REQUEST_TIMEOUT_MS, RETRY_DEADLINE_MS
from bascule.spark.option_model import OptionSet
from bascule.spark.spelling import spelled
from bascule.spark.unreached import shown_address

__all__ = ["ANSWER_MS", "START_MS", "check_reached", "never_reached"]

START_MS: Final = 3_000
"""How long a broker is tried at the start, unless `retryDeadlineMs` is given."""
ANSWER_MS: Final = 5_000
"""How long a broker may take to answer then."""
_OPTIONS: Final = OptionSet("connection", "", CONNECTION)


def check_reached(what: str, given: Mapping[str, str]) -> None:
    """Ask the broker of options. Any answer suffices, also that a right is missing.

    Args:
        what: it is that begins, for the sentence.
        given: options of the source or the sink by name; only those of the connection count.

    Raises:
        UnavailableError: the broker did not answer within `START_MS`, or within `retryDeadlineMs` if that is given; the
            sentence names its address.
        InternalError: what answers is not a broker.
    """
    names = {name.lower() for name in _OPTIONS.names}
    found = _OPTIONS.read({name: text for name, text in given.items() if name.lower() in names})
    is_given = any(name.lower() == RETRY_DEADLINE_MS.name.lower() for name in given)
    wait_ms = found.value(RETRY_DEADLINE_MS) if is_given else START_MS
    address, answer_ms = found.value(ADDRESS), min(found.value(REQUEST_TIMEOUT_MS), ANSWER_MS)
    broker = Broker(address, found.value(NAMESPACE), answer_ms, wait_ms)
    failure = never_reached(broker, address)
    if failure is None:
        return
    text = f"{what} has not started, because its broker was not reached: {failure}"
    remedy = f"To wait for a broker that starts later, set {spelled(RETRY_DEADLINE_MS.name)}"
    raise error(failure.code, f"{text}. {remedy}", failure.details) from None


def never_reached(broker: Broker, address: str) -> BrokerError | None:
    """Why a broker is not reached, with its address; None = it is.

    Args:
        broker: that is asked.
        address: of it.
    """
    try:
        broker.streams()
    except BrokerError as failure:
        if not isinstance(failure, (UnavailableError, InternalError)):
            return None
        place, reason = f"broker at {shown_address(address)}", str(failure)
        if place not in reason:
            reason = f"{place}: {reason}; check the address, and that a broker runs there"
        return error(failure.code, reason, failure.details)
    return None
