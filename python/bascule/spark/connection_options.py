"""The options of every format that calls a broker: its address, the namespace, deadlines."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl

from bascule.spark.option_model import Option, number, parsed, text

DEFAULT_ADDRESS: Final = "127.0.0.1:9292"
_PROTECTED: Final = re.compile(r"^(grpc\+tls|bascules|liftbridges)://")
_PLAIN: Final = re.compile(r"^(grpc(\+tcp)?|bascule|liftbridge)://")
_TLS_FILES: Final = {"ca", "cert", "key"}


def parse_address(given: str) -> str:
    """`grpc://host:port`, or `grpc+tls://host:port` followed by the names of the files.

    Raises:
        ValueError: several addresses, or neither `host:port` nor `bascules://host:port?ca=FILE&cert=FILE&key=FILE`.
    """
    if "," in given:
        raise ValueError("it must be one host:port")
    is_protected = _PROTECTED.match(given) is not None
    address = _PROTECTED.sub("", _PLAIN.sub("", given))
    address, question, query = address.partition("?")
    host, _, port = address.rpartition(":")
    if (
        not host
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or not 0 < int(port) < 65_536
        or "/" in address
        or (question and not is_protected)
    ):
        raise ValueError("it must be host:port, or bascules://host:port?ca=FILE")
    if not is_protected:
        return f"grpc://{address}"
    files = dict(parse_qsl(query, keep_blank_values=True))
    if not files.keys() <= _TLS_FILES or not all(files.values()) or ("cert" in files) != ("key" in files):
        raise ValueError("after ? it may name ca, and cert with key, each with a file")
    return f"grpc+tls://{address}?{query}"


ADDRESS: Final = parsed(
    "address",
    "a broker; with TLS `bascules://host:port?ca=FILE&cert=FILE&key=FILE`, the files on every host or in `spark.files`",
    "host:port",
    parse_address,
    default=DEFAULT_ADDRESS,
)
NAMESPACE: Final = text("namespace", "namespace of the streams", default="default")
REQUEST_TIMEOUT_MS: Final = number("requestTimeoutMs", "deadline of one request, in ms", default="30000", least=1)
RETRY_DEADLINE_MS: Final = number(
    "retryDeadlineMs", "how long an unreachable broker is tried again, in ms", default="60000"
)

CONNECTION: Final[tuple[Option[Any], ...]] = (ADDRESS, NAMESPACE, REQUEST_TIMEOUT_MS, RETRY_DEADLINE_MS)
"""All of them, for an `OptionSet`."""
