"""The request that publishes to a NATS subject, and its answer. No I/O."""

from collections.abc import Mapping
from typing import Final

from bascule._liftbridge_pb import message
from bascule.client._core.requests.bounds import ack_policy
from bascule.client._core.types import Ack, Content, Headers, SubjectReceipt
from bascule.errors import error

__all__ = ["publish_to_subject", "read_subject_ack"]

_ACK_ERRORS: Final = {
    2: ("incorrect_offset", "it checks offsets, and only its first record can come by subject"),
    3: ("too_large", "it is larger than the stream accepts, see bascule stream edit --max-record-bytes"),
    4: ("encryption_key_missing", "the broker lacks the key to encrypt it, see encryption.keys of its configuration"),
}


def publish_to_subject(
    subject: str, value: Content | None, key: Content | None, headers: Headers | None, ack: Ack
) -> bytes:
    """A PublishToSubjectRequest. Headers that a map cannot hold are sent as a list, which only Bascule brokers read."""
    request = message("PublishToSubjectRequest")(subject=subject, ackPolicy=ack_policy(ack))
    if value is None:
        request.nullValue = True
    else:
        request.value = _bytes(value)
    if key:
        request.key = _bytes(key)
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    names = [name.encode("utf-8", "surrogateescape") for name, _ in pairs]
    texts = [name for name, _ in pairs if _is_text(name)]
    for name, content in pairs:
        if _is_text(name):
            request.headers[name] = _bytes(content)
    if len(set(texts)) < len(pairs):
        for name, (_, content) in zip(names, pairs, strict=True):
            request.headerList.add(name=name, value=_bytes(content))
    return request.SerializeToString()


def _bytes(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def _is_text(name: str) -> bool:
    """Whether the name has no lone surrogates, which stand for bytes that are not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def read_subject_ack(answer: bytes) -> SubjectReceipt | None:
    """The acknowledgement of a PublishToSubjectResponse; `None` if none was requested.

    Raises:
        BrokerError: the stream that answered first rejected the record.
    """
    response = message("PublishToSubjectResponse").FromString(answer)
    if not response.HasField("ack"):
        return None
    ack = response.ack
    if ack.ackError:
        code, reason = _ACK_ERRORS.get(ack.ackError, ("internal", f"error {ack.ackError}"))
        text = f'stream "{ack.stream}" rejected the record on subject "{ack.msgSubject}": {reason}'
        raise error(code, text, {"stream": ack.stream})
    return SubjectReceipt(ack.stream, ack.offset, ack.receptionTimestamp)
