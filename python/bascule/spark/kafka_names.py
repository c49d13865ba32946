"""What to use instead of an option of Spark's Kafka connector."""

from typing import Final

_OURS: Final = {
    "subscribe": "stream",
    "topic": "stream",
    "subscribepattern": "streamPattern",
    "kafka.bootstrap.servers": "address",
    "includeheaders": "columns and list headers in it",
    "failondataloss": "onDataLoss, which is fail (as true) or skip (as false)",
    "kafkaconsumer.polltimeoutms": "requestTimeoutMs",
    "fetchoffset.numretries": "retryDeadlineMs",
    "fetchoffset.retryintervalms": "retryDeadlineMs",
    "kafka.request.timeout.ms": "requestTimeoutMs",
    "kafka.security.protocol": "address with bascules://host:port?ca=FILE",
    "kafka.ssl.truststore.location": "address with bascules://host:port?ca=FILE",
    "kafka.ssl.keystore.location": "address with bascules://host:port?ca=FILE&cert=FILE&key=FILE",
    "kafka.auto.offset.reset": "startingOffsets",
    "startingtimestampstrategy": "startingOffsetsByTimestampStrategy",
}
"""Options with a counterpart, by lower-case name. Those that are called the same here are not in it."""

_POSITIONS: Final = "it is one of Kafka's connector, leave it out, the positions of a query are in its checkpoint"
_NEEDLESS: Final = {
    "kafka.group.id": f"{_POSITIONS}, consumerGroup shows them at the broker",
    "groupidprefix": _POSITIONS,
    "kafka.isolation.level": "it is one of Kafka's connector, leave it out, only committed records are read",
}


def kafka_advice(name: str) -> str | None:
    """What to use instead of `name`, an option in lower case; None = it is not one of Kafka's."""
    if name in _OURS:
        return f"it is one of Kafka's connector, use {_OURS[name]}"
    if name in _NEEDLESS:
        return _NEEDLESS[name]
    if name.startswith("kafka."):
        return "it is one of Kafka's client and has no meaning here, the broker is set by address"
    return None


def kafka_sink_advice(name: str) -> str | None:
    """As `kafka_advice`, for a write."""
    if name in ("subscribe", "topic"):
        return "it is one of Kafka's connector, use stream"
    if name == "includeheaders":
        return "it is one of Kafka's connector, leave it out, the column headers is written when it is there"
    return kafka_advice(name)
